#include "grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "grammar/schema_keywords.h"

namespace mererun {

using Json = nlohmann::ordered_json;

namespace {
constexpr std::size_t kMaxWork = 200'000;  // keywords read, alternatives counted one by one
}

unsigned json_type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return kJsonNull;
    case Json::value_t::boolean: return kJsonBoolean;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return kJsonInteger;
    case Json::value_t::number_float: {
      const double number = value.get<double>();
      return std::trunc(number) == number ? kJsonInteger : kJsonFractional;
    }
    case Json::value_t::string: return kJsonString;
    case Json::value_t::array: return kJsonArray;
    default: return kJsonObject;
  }
}

SchemaConjunction ValueRules::item(std::size_t index) const {
  SchemaConjunction all;
  for (const Items& one : items) {
    if (index < one.first.size())
      all.push_back(one.first[index]);
    else if (one.others)
      all.push_back(*one.others);
  }
  return all;
}

std::size_t ValueRules::num_first_items() const {
  std::size_t count = 0;
  for (const Items& one : items) count = std::max(count, one.first.size());
  return count;
}

SchemaConjunction ValueRules::property(std::string_view name) const {
  SchemaConjunction all;
  for (const Properties& one : properties) {
    const auto named = std::find_if(one.named.begin(), one.named.end(),
                                    [&](const auto& property) { return property.first == name; });
    if (named != one.named.end())
      all.push_back(named->second);
    else if (one.additional)
      all.push_back(*one.additional);
  }
  return all;
}

SchemaConjunction ValueRules::additional() const {
  SchemaConjunction all;
  for (const Properties& one : properties)
    if (one.additional) all.push_back(*one.additional);
  return all;
}

std::vector<std::string> ValueRules::property_names() const {
  std::vector<std::string> names;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  for (const Properties& one : properties)
    for (const auto& [name, place] : one.named) add(name);
  for (const std::string& name : required) add(name);
  return names;
}

bool ValueRules::has_additional() const { return !names_properties || !additional().empty(); }

SchemaReader::SchemaReader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {
  // Before anything walks it by recursion.
  std::vector<std::pair<const Json*, int>> open{{&root, 0}};
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    if (depth > kMaxNesting)
      fail_expected(ErrorCode::kInvalidArgument, where_, fmt::format("at most {} levels", kMaxNesting),
                    "more");
    if (!value->is_structured()) continue;
    for (const Json& inner : *value) open.emplace_back(&inner, depth + 1);
  }
}

std::vector<ValueRules> SchemaReader::read(const SchemaConjunction& conjunction) {
  std::vector<ValueRules> alternatives(1);
  for (const SchemaPlace& one : conjunction) apply(one, alternatives, 0);
  for (ValueRules& rules : alternatives) {
    // A schema that speaks of the length of strings is about strings, even if it doesn't say so.
    if (!rules.is_typed && !rules.values && rules.implied_types != 0) rules.types &= rules.implied_types;
  }
  return alternatives;
}

void SchemaReader::apply(const SchemaPlace& at, std::vector<ValueRules>& alternatives, int depth) {
  if (depth > kMaxDepth)
    fail_expected(ErrorCode::kInvalidArgument, place(at.pointer),
                  fmt::format("at most {} schemas within one another", kMaxDepth),
                  "more, or a reference that leads back to itself");
  const Json& schema = *at.schema;
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) alternatives.clear();
    return;
  }
  if (!schema.is_object())
    fail_expected(ErrorCode::kInvalidArgument, place(at.pointer), "a schema (an object, true or false)",
                  schema.type_name());
  for (const auto& [name, value] : schema.items()) {
    if (is_annotation(name)) continue;
    const SchemaPlace inner{&value, at.pointer + "/" + name};
    const bool joins = name == "allOf", splits = name == "anyOf" || name == "oneOf";
    if (name == "$ref") {
      apply(resolve(inner), alternatives, depth + 1);
    } else if (joins || splits) {
      if (!value.is_array() || value.empty())
        fail_expected(ErrorCode::kInvalidArgument, place(inner.pointer), "a list of schemas",
                      value.type_name());
      if (splits) {
        apply_branches(inner, alternatives, depth);
        continue;
      }
      for (std::size_t i = 0; i < value.size(); ++i)
        apply({&value[i], fmt::format("{}/{}", inner.pointer, i)}, alternatives, depth + 1);
    } else {
      // Even where nothing is left to narrow, so that every keyword is known to be one.
      ValueRules ignored;
      const SchemaKeyword keyword{schema, value, name, inner.pointer, place(inner.pointer)};
      if (!apply_value_keyword(keyword, ignored))
        fail_expected(ErrorCode::kInvalidArgument, place(inner.pointer), "a supported keyword", name);
      for (ValueRules& rules : alternatives) apply_value_keyword(keyword, rules);
      if ((work_ += 1 + alternatives.size()) > kMaxWork)
        fail_expected(ErrorCode::kInvalidArgument, place(inner.pointer), "a smaller schema",
                      "more alternatives and keywords than can be read");
    }
  }
}

void SchemaReader::apply_branches(const SchemaPlace& at, std::vector<ValueRules>& alternatives, int depth) {
  std::vector<ValueRules> result;
  for (std::size_t i = 0; i < at.schema->size(); ++i) {
    std::vector<ValueRules> branch = alternatives;
    apply({&(*at.schema)[i], fmt::format("{}/{}", at.pointer, i)}, branch, depth + 1);
    result.insert(result.end(), branch.begin(), branch.end());
    if (result.size() > kMaxAlternatives)
      fail_expected(ErrorCode::kInvalidArgument, place(at.pointer),
                    fmt::format("at most {} alternatives, multiplied out", kMaxAlternatives), "more");
  }
  alternatives = std::move(result);
}

SchemaPlace SchemaReader::resolve(const SchemaPlace& reference) const {
  const Json& value = *reference.schema;
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  const auto fail = [&](std::string_view expected) {
    fail_expected(ErrorCode::kInvalidArgument, place(reference.pointer), expected,
                  value.is_string() ? text : value.type_name());
  };
  if (text != "#" && !text.starts_with("#/")) fail("a reference within the schema (\"#/...\")");
  const Json* at = &root_;
  for (std::size_t begin = 2; begin <= text.size() && text.size() > 1;) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    std::string key = text.substr(begin, end - begin);
    for (const auto& [escape, plain] : {std::pair("~1", "/"), std::pair("~0", "~")})
      for (std::size_t i = 0; (i = key.find(escape, i)) != std::string::npos; ++i) key.replace(i, 2, plain);
    const Json* next = nullptr;
    if (at->is_object()) {
      if (const auto member = at->find(key); member != at->end()) next = &*member;
    } else if (at->is_array() && !key.empty() && key.size() < 7 &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<std::size_t>(std::stoi(key));
      if (index < at->size()) next = &(*at)[index];
    }
    if (next == nullptr) fail("a reference to something that exists");
    at = next;
    begin = end + 1;
  }
  return {at, text};
}

}  // namespace mererun
