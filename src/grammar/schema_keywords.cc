#include "grammar/schema_keywords.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "grammar/string_formats.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxListed = 1000;

[[noreturn]] void fail(const SchemaKeyword& keyword, std::string_view expected) {
  std::string got = keyword.value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (got.size() > 60) got = got.substr(0, 60) + "...";
  fail_expected(ErrorCode::kInvalidArgument, keyword.where, expected, got);
}

/// A property's name as a part of a JSON pointer (RFC 6901).
std::string pointer_token(const std::string& name) {
  std::string token;
  for (const char c : name) {
    if (c == '~')
      token += "~0";
    else if (c == '/')
      token += "~1";
    else
      token += c;
  }
  return token;
}

int count_of(const SchemaKeyword& keyword) {
  const std::string expected = fmt::format("an integer from 0 to {}", ExpressionPool::kMaxCount);
  if (!keyword.value.is_number()) fail(keyword, expected);
  const double value = keyword.value.get<double>();
  if (!(value >= 0 && value <= ExpressionPool::kMaxCount) || value != static_cast<int>(value))
    fail(keyword, expected);
  return static_cast<int>(value);
}

unsigned type_named(const SchemaKeyword& keyword, const Json& name) {
  static const std::map<std::string, unsigned> kTypes = {{"null", kJsonNull},
                                                         {"boolean", kJsonBoolean},
                                                         {"integer", kJsonInteger},
                                                         {"string", kJsonString},
                                                         {"array", kJsonArray},
                                                         {"object", kJsonObject},
                                                         {"number", kJsonInteger | kJsonFractional}};
  const auto type = name.is_string() ? kTypes.find(name.get<std::string>()) : kTypes.end();
  if (type == kTypes.end()) fail(keyword, "null, boolean, integer, number, string, array or object");
  return type->second;
}

void apply_type(const SchemaKeyword& keyword, ValueRules& rules) {
  unsigned types = 0;
  if (keyword.value.is_array()) {
    for (const Json& name : keyword.value) types |= type_named(keyword, name);
  } else {
    types = type_named(keyword, keyword.value);
  }
  // OpenAPI's way to write "or null".
  const auto nullable = keyword.schema.find("nullable");
  if (nullable != keyword.schema.end() && *nullable == true) types |= kJsonNull;
  rules.types &= types;
  rules.is_typed = true;
}

void keep_values(ValueRules& rules, std::vector<const Json*> values) {
  if (rules.values) {
    std::erase_if(values, [&](const Json* value) {
      return std::none_of(rules.values->begin(), rules.values->end(),
                          [&](const Json* other) { return *other == *value; });
    });
  }
  rules.values = std::move(values);
}

void apply_enum(const SchemaKeyword& keyword, ValueRules& rules) {
  if (!keyword.value.is_array() || keyword.value.empty()) fail(keyword, "a list of values");
  std::vector<const Json*> values;
  for (const Json& value : keyword.value) values.push_back(&value);
  keep_values(rules, std::move(values));
}

void tighten_max(std::optional<int>& max, int value) { max = max ? std::min(*max, value) : value; }

void apply_pattern(const SchemaKeyword& keyword, ValueRules& rules) {
  if (!keyword.value.is_string()) fail(keyword, "a string");
  const std::string text = keyword.value.get<std::string>();
  const auto is_known = [&](const PlacedText& known) { return known.text == text; };
  if (std::none_of(rules.patterns.begin(), rules.patterns.end(), is_known))
    rules.patterns.push_back({text, keyword.where});
}

void tighten_lower(ValueRules& rules, const DecimalBound& bound) {
  if (!rules.lower) {
    rules.lower = bound;
    return;
  }
  const int order = compare(bound.value, rules.lower->value);
  if (order > 0 || (order == 0 && bound.is_exclusive)) rules.lower = bound;
}

void tighten_upper(ValueRules& rules, const DecimalBound& bound) {
  if (!rules.upper) {
    rules.upper = bound;
    return;
  }
  const int order = compare(bound.value, rules.upper->value);
  if (order < 0 || (order == 0 && bound.is_exclusive)) rules.upper = bound;
}

void apply_format(const SchemaKeyword& keyword, ValueRules& rules) {
  if (!keyword.value.is_string()) fail(keyword, "a string");
  const std::string name = keyword.value.get<std::string>();
  if (name == "int32") {
    tighten_lower(rules, {decimal_of(Json(-2147483648LL), keyword.where), false});
    tighten_upper(rules, {decimal_of(Json(2147483647LL), keyword.where), false});
    return;
  }
  // Every number that is generated is one of these.
  if (name == "int64" || name == "float" || name == "double") return;
  const std::optional<std::string_view> pattern = pattern_of_format(name);
  if (!pattern) fail(keyword, fmt::format("one of the formats {}", format_names()));
  const std::string text(*pattern);
  const auto is_known = [&](const PlacedText& known) { return known.text == text; };
  if (std::none_of(rules.patterns.begin(), rules.patterns.end(), is_known))
    rules.patterns.push_back({text, keyword.where});
  rules.implied_types |= kJsonString;
}

void apply_required(const SchemaKeyword& keyword, ValueRules& rules) {
  if (!keyword.value.is_array() || keyword.value.size() > kMaxListed)
    fail(keyword, fmt::format("a list of at most {} strings", kMaxListed));
  for (const Json& name : keyword.value) {
    if (!name.is_string()) fail(keyword, "a list of strings");
    const std::string text = name.get<std::string>();
    if (std::find(rules.required.begin(), rules.required.end(), text) == rules.required.end())
      rules.required.push_back(text);
  }
}

void apply_properties(const SchemaKeyword& keyword, ValueRules& rules) {
  if (!keyword.value.is_object()) fail(keyword, "an object");
  ValueRules::Properties properties;
  for (const auto& [name, schema] : keyword.value.items())
    properties.named.push_back({name, {&schema, keyword.pointer + "/" + pointer_token(name)}});
  const auto additional = keyword.schema.find("additionalProperties");
  if (additional != keyword.schema.end()) {
    const std::string parent = keyword.pointer.substr(0, keyword.pointer.rfind('/'));
    properties.additional = SchemaPlace{&*additional, parent + "/additionalProperties"};
  }
  rules.properties.push_back(std::move(properties));
  rules.names_properties = true;
}

void apply_additional(const SchemaKeyword& keyword, ValueRules& rules) {
  if (keyword.schema.contains("properties")) return;  // taken together
  rules.properties.push_back({.named = {}, .additional = SchemaPlace{&keyword.value, keyword.pointer}});
}

void apply_items(const SchemaKeyword& keyword, ValueRules& rules) {
  const auto prefix = keyword.schema.find("prefixItems");
  const auto items = keyword.schema.find("items");
  const bool has_prefix = prefix != keyword.schema.end(), has_items = items != keyword.schema.end();
  if (keyword.name == "items" && has_prefix) return;  // taken together
  const std::string parent = keyword.pointer.substr(0, keyword.pointer.rfind('/'));
  ValueRules::Items result;
  if (has_prefix) {
    if (!prefix->is_array() || prefix->size() > kMaxListed)
      fail(keyword, fmt::format("a list of at most {} schemas", kMaxListed));
    for (std::size_t i = 0; i < prefix->size(); ++i)
      result.first.push_back({&(*prefix)[i], fmt::format("{}/prefixItems/{}", parent, i)});
  }
  if (has_items) {
    if (items->is_array()) fail(keyword, "a schema (a list of schemas is called prefixItems)");
    result.others = SchemaPlace{&*items, parent + "/items"};
  }
  rules.items.push_back(std::move(result));
}

void apply_bounds(const SchemaKeyword& keyword, ValueRules& rules) {
  if (keyword.name == "minimum") {
    tighten_lower(rules, {decimal_of(keyword.value, keyword.where), false});
  } else if (keyword.name == "maximum") {
    tighten_upper(rules, {decimal_of(keyword.value, keyword.where), false});
  } else if (keyword.name == "exclusiveMinimum") {
    tighten_lower(rules, {decimal_of(keyword.value, keyword.where), true});
  } else {
    tighten_upper(rules, {decimal_of(keyword.value, keyword.where), true});
  }
}

struct Handler {
  unsigned implied_types;
  std::function<void(const SchemaKeyword&, ValueRules&)> apply;
};

const std::map<std::string, Handler>& handlers() {
  constexpr unsigned kNumbers = kJsonInteger | kJsonFractional;
  static const std::map<std::string, Handler> kHandlers = {
      {"type", {0, apply_type}},
      {"enum", {0, apply_enum}},
      {"const", {0, [](const SchemaKeyword& k, ValueRules& r) { keep_values(r, {&k.value}); }}},
      {"minLength",
       {kJsonString,
        [](const SchemaKeyword& k, ValueRules& r) { r.min_length = std::max(r.min_length, count_of(k)); }}},
      {"maxLength",
       {kJsonString, [](const SchemaKeyword& k, ValueRules& r) { tighten_max(r.max_length, count_of(k)); }}},
      {"pattern", {kJsonString, apply_pattern}},
      {"format", {0, apply_format}},
      {"minimum", {kNumbers, apply_bounds}},
      {"maximum", {kNumbers, apply_bounds}},
      {"exclusiveMinimum", {kNumbers, apply_bounds}},
      {"exclusiveMaximum", {kNumbers, apply_bounds}},
      {"prefixItems", {kJsonArray, apply_items}},
      {"items", {kJsonArray, apply_items}},
      {"minItems",
       {kJsonArray,
        [](const SchemaKeyword& k, ValueRules& r) { r.min_items = std::max(r.min_items, count_of(k)); }}},
      {"maxItems",
       {kJsonArray, [](const SchemaKeyword& k, ValueRules& r) { tighten_max(r.max_items, count_of(k)); }}},
      {"uniqueItems",
       {kJsonArray,
        [](const SchemaKeyword& k, ValueRules&) {
          if (k.value != false) fail(k, "false (a list without repeats is not supported)");
        }}},
      {"properties", {kJsonObject, apply_properties}},
      {"additionalProperties", {kJsonObject, apply_additional}},
      {"required", {kJsonObject, apply_required}},
      {"nullable",
       {0,
        [](const SchemaKeyword& k, ValueRules&) {
          if (!k.value.is_boolean()) fail(k, "true or false");  // `type` takes it into account
        }}},
  };
  return kHandlers;
}

}  // namespace

bool apply_value_keyword(const SchemaKeyword& keyword, ValueRules& rules) {
  const auto handler = handlers().find(keyword.name);
  if (handler == handlers().end()) return false;
  handler->second.apply(keyword, rules);
  rules.implied_types |= handler->second.implied_types;
  return true;
}

bool is_annotation(const std::string& keyword) {
  static const std::set<std::string> kAnnotations = {
      "title",           "description",     "default",     "examples", "example",
      "deprecated",      "readOnly",        "writeOnly",   "$schema",  "$id",
      "$comment",        "$defs",           "definitions", "strict",   "$anchor",
      "contentEncoding", "contentMediaType"};
  return kAnnotations.contains(keyword);
}

}  // namespace mererun
