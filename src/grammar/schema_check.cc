#include "grammar/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/regex_parser.h"
#include "grammar/state_table.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;

class Checker {
 public:
  explicit Checker(SchemaReader& reader) : reader_(reader) {}

  bool check(const ValueRules& rules, const Json& value, int depth) {
    if (depth > kMaxDepth)
      fail_expected(ErrorCode::kInvalidArgument, reader_.place("enum"),
                    fmt::format("values of at most {} levels", kMaxDepth), "more");
    const unsigned type = json_type_of(value);
    if ((rules.types & type) == 0) return false;
    // The outermost value is one of them.
    if (depth > 0 && rules.values &&
        std::none_of(rules.values->begin(), rules.values->end(),
                     [&](const Json* allowed) { return *allowed == value; }))
      return false;
    switch (type) {
      case kJsonString: return check_string(rules, value.get<std::string>());
      case kJsonInteger:
      case kJsonFractional: return check_number(rules, value);
      case kJsonArray: return check_array(rules, value, depth);
      case kJsonObject: return check_object(rules, value, depth);
      default: return true;
    }
  }

 private:
  bool check_any(const SchemaConjunction& conjunction, const Json& value, int depth) {
    const std::vector<ValueRules> alternatives = reader_.read(conjunction);
    return std::any_of(alternatives.begin(), alternatives.end(),
                       [&](const ValueRules& rules) { return check(rules, value, depth + 1); });
  }

  bool check_string(const ValueRules& rules, const std::string& text) {
    const auto length = static_cast<long>(code_points_of(text, reader_.place("enum")).size());
    if (length < rules.min_length || (rules.max_length && length > *rules.max_length)) return false;
    return std::all_of(rules.patterns.begin(), rules.patterns.end(),
                       [&](const PlacedText& pattern) { return matches(pattern, text); });
  }

  bool check_number(const ValueRules& rules, const Json& value) {
    if (!rules.lower && !rules.upper) return true;
    const Decimal number = decimal_of(value, reader_.place("enum"));
    if (rules.lower) {
      const int order = compare(number, rules.lower->value);
      if (order < 0 || (order == 0 && rules.lower->is_exclusive)) return false;
    }
    if (rules.upper) {
      const int order = compare(number, rules.upper->value);
      if (order > 0 || (order == 0 && rules.upper->is_exclusive)) return false;
    }
    return true;
  }

  bool check_array(const ValueRules& rules, const Json& value, int depth) {
    const auto size = static_cast<long>(value.size());
    if (size < rules.min_items || (rules.max_items && size > *rules.max_items)) return false;
    for (std::size_t i = 0; i < value.size(); ++i)
      if (!check_any(rules.item(i), value[i], depth)) return false;
    return true;
  }

  bool check_object(const ValueRules& rules, const Json& value, int depth) {
    for (const std::string& name : rules.required)
      if (!value.contains(name)) return false;
    for (const auto& [name, member] : value.items())
      if (!check_any(rules.property(name), member, depth)) return false;
    return true;
  }

  /// The pattern is found in the text.
  bool matches(const PlacedText& pattern, const std::string& text) {
    std::unique_ptr<StateTable>& table = tables_[pattern.text];
    if (!table) {
      ExpressionPool pool;
      const RuleId rule = pool.add_rule("pattern");
      pool.define(rule, parse_pattern(pool, pattern.text, CharacterEncoding::kText, CodePointSet::all(),
                                      pattern.pointer));
      table = std::make_unique<StateTable>(Automaton::compile(pool, rule));
    }
    StateId state = table->start();
    for (const char byte : text) state = table->step(state, static_cast<std::uint8_t>(byte));
    return table->may_end(state);
  }

  SchemaReader& reader_;
  std::map<std::string, std::unique_ptr<StateTable>> tables_;  // by pattern
};

}  // namespace

std::vector<const Json*> satisfying_values(SchemaReader& reader, const ValueRules& rules) {
  Checker checker(reader);
  std::vector<const Json*> values;
  for (const Json* value : *rules.values)
    if (checker.check(rules, *value, 0)) values.push_back(value);
  return values;
}

}  // namespace mererun
