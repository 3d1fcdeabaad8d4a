#include "grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_check.h"

namespace mererun {

using Json = nlohmann::ordered_json;

namespace {

/// The pattern's own bounds and those of the length together, where the pattern is one repeated character.
std::optional<ExpressionId> repeated_character(ExpressionPool& pool, ExpressionId pattern, int min,
                                               std::optional<int> max) {
  const Expression repeat = pool.at(pattern);
  if (repeat.kind != ExpressionKind::kRepeat ||
      pool.at(repeat.children.front()).kind != ExpressionKind::kClass)
    return std::nullopt;
  const int least = std::max(repeat.min, min);
  std::optional<int> most = repeat.max;
  if (max) most = most ? std::min(*most, *max) : *max;
  if (most && *most < least) return pool.never();
  return pool.repeat(repeat.children.front(), least, most);
}

}  // namespace

std::string SchemaCompiler::json_text(const Json& value) const {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (json_.markup() == MarkupText::kEscaped)
    for (std::size_t i = 0; (i = text.find('<', i)) != std::string::npos;) text.replace(i, 1, "\\u003c");
  return text;
}

/// What patterns may use.
CodePointSet SchemaCompiler::alphabet() const {
  return json_.markup() == MarkupText::kEscaped ? CodePointSet::one('<').complement() : CodePointSet::all();
}

ExpressionId SchemaCompiler::value(const SchemaConjunction& conjunction) {
  if (conjunction.empty()) return json_.value();
  std::vector<const Json*> key;
  for (const SchemaPlace& place : conjunction) key.push_back(place.schema);
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [known, is_new] = rules_.try_emplace(std::move(key), 0);
  if (is_new) {
    if (rules_.size() > kMaxValues)
      fail_expected(ErrorCode::kInvalidArgument, reader_.place(conjunction.front().pointer),
                    fmt::format("at most {} schemas", kMaxValues), "more");
    known->second = pool_.add_rule(reader_.place(conjunction.front().pointer));
    pending_.push_back({known->second, conjunction});
  }
  return pool_.rule(known->second);
}

void SchemaCompiler::finish() {
  // Iterative: schemas nest as deep as their writer likes.
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.back());
    pending_.pop_back();
    std::vector<ExpressionId> options;
    for (const ValueRules& rules : reader_.read(next.conjunction)) options.push_back(json_value(rules));
    pool_.define(next.rule, pool_.choice(std::move(options)));
  }
}

ExpressionId SchemaCompiler::json_value(const ValueRules& rules) {
  if (!rules.values) {
    std::vector<ExpressionId> options{any_of_types(rules)};
    if (rules.types & kJsonString) options.push_back(string(rules));
    return pool_.choice(std::move(options));
  }
  std::vector<ExpressionId> options;
  for (const Json* value : satisfying_values(reader_, rules))
    options.push_back(pool_.bytes(json_text(*value)));
  return pool_.choice(std::move(options));
}

/// Values of all types but string.
ExpressionId SchemaCompiler::any_of_types(const ValueRules& rules) {
  std::vector<ExpressionId> options;
  if (rules.types & kJsonObject) options.push_back(object(rules));
  if (rules.types & kJsonArray) options.push_back(array(rules));
  if (rules.types & (kJsonInteger | kJsonFractional)) options.push_back(number(rules));
  if (rules.types & kJsonBoolean) {
    options.push_back(pool_.bytes("true"));
    options.push_back(pool_.bytes("false"));
  }
  if (rules.types & kJsonNull) options.push_back(pool_.bytes("null"));
  return pool_.choice(std::move(options));
}

ExpressionId SchemaCompiler::patterned(const ValueRules& rules, CharacterEncoding encoding) {
  if (rules.patterns.size() > 1)
    fail_expected(ErrorCode::kInvalidArgument, rules.patterns[1].pointer,
                  "one pattern or format for a string", "another");
  const PlacedText& pattern = rules.patterns.front();
  const ExpressionId body = parse_pattern(pool_, pattern.text, encoding, alphabet(), pattern.pointer);
  if (rules.min_length == 0 && !rules.max_length) return body;
  if (const auto simple = repeated_character(pool_, body, rules.min_length, rules.max_length)) return *simple;
  return pool_.with_length(body, rules.min_length, rules.max_length);
}

ExpressionId SchemaCompiler::string(const ValueRules& rules) {
  if (rules.max_length && *rules.max_length < rules.min_length) return pool_.never();
  if (rules.patterns.empty()) return json_.string(rules.min_length, rules.max_length);
  return pool_.sequence({pool_.bytes("\""), patterned(rules, CharacterEncoding::kJson), pool_.bytes("\"")});
}

ExpressionId SchemaCompiler::number(const ValueRules& rules) {
  const bool is_integer = (rules.types & kJsonFractional) == 0;
  if (!rules.lower && !rules.upper) return is_integer ? json_.integer() : json_.number();
  return number_range(pool_, rules.lower, rules.upper,
                      is_integer ? NumberKind::kInteger : NumberKind::kNumber);
}

ExpressionId SchemaCompiler::array(const ValueRules& rules) {
  std::vector<ExpressionId> first;
  for (std::size_t i = 0; i < rules.num_first_items(); ++i) first.push_back(value(rules.item(i)));
  return json_.array(first, value(rules.item(first.size())), rules.min_items, rules.max_items);
}

ExpressionId SchemaCompiler::object(const ValueRules& rules) {
  const std::vector<std::string> names = rules.property_names();
  const ExpressionId comma = pool_.sequence({pool_.bytes(","), json_.space()});
  // What may follow the first i properties, when none (first) or some (later) of them were written.
  ExpressionId first = pool_.bytes("}");
  ExpressionId later = pool_.sequence({json_.space(), pool_.bytes("}")});
  if (rules.has_additional()) {
    const ExpressionId member = pool_.sequence({names.empty() ? json_.string() : json_.string_except(names),
                                                json_.colon(), value(rules.additional())});
    later = pool_.sequence({pool_.repeat(pool_.sequence({comma, member}), 0, std::nullopt), later});
    first = pool_.choice({first, pool_.sequence({json_.space(), member, later})});
  }
  for (std::size_t i = names.size(); i-- > 0;) {
    // Shared by the two ways here, and by all that come before.
    const RuleId rest = pool_.add_rule("properties");
    pool_.define(rest, later);
    const ExpressionId member = pool_.sequence({pool_.bytes(json_text(Json(names[i]))), json_.colon(),
                                                value(rules.property(names[i])), pool_.rule(rest)});
    const RuleId with_member = pool_.add_rule("property " + names[i]);
    pool_.define(with_member, member);
    const bool is_required =
        std::find(rules.required.begin(), rules.required.end(), names[i]) != rules.required.end();
    const ExpressionId here = pool_.rule(with_member);
    const ExpressionId write_first = pool_.sequence({json_.space(), here});
    const ExpressionId write_later = pool_.sequence({comma, here});
    first = is_required ? write_first : pool_.choice({write_first, first});
    later = is_required ? write_later : pool_.choice({write_later, pool_.rule(rest)});
  }
  return pool_.sequence({pool_.bytes("{"), first});
}

ExpressionId SchemaCompiler::argument(const SchemaConjunction& conjunction,
                                      const std::vector<std::string>& markup) {
  std::vector<ExpressionId> options;
  for (const ValueRules& rules : reader_.read(conjunction)) options.push_back(bare_value(rules, markup));
  return pool_.choice(std::move(options));
}

ExpressionId SchemaCompiler::bare_value(const ValueRules& rules, const std::vector<std::string>& markup) {
  std::vector<ExpressionId> options;
  if (rules.values) {
    for (const Json* value : satisfying_values(reader_, rules)) {
      const std::string text = value->is_string() ? value->get<std::string>() : json_text(*value);
      const auto occurs = [&](const std::string& tag) { return text.find(tag) != std::string::npos; };
      if (std::none_of(markup.begin(), markup.end(), occurs)) options.push_back(pool_.bytes(text));
    }
    return pool_.choice(std::move(options));
  }
  options.push_back(any_of_types(rules));
  if (rules.types & kJsonString) {
    const bool is_bounded = rules.min_length > 0 || rules.max_length.has_value();
    if (!rules.patterns.empty())
      options.push_back(patterned(rules, CharacterEncoding::kText));
    else if (!is_bounded)
      options.push_back(pool_.without(markup));
    else if (!rules.max_length || rules.min_length <= *rules.max_length)
      options.push_back(pool_.repeat(pool_.character({}, CharacterEncoding::kTextFree), rules.min_length,
                                     rules.max_length));
  }
  return pool_.choice(std::move(options));
}

}  // namespace mererun
