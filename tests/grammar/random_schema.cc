#include "tests/grammar/random_schema.h"

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

class SchemaMaker {
 public:
  explicit SchemaMaker(std::uint32_t seed) : random_(seed) {}

  Json root() {
    Json schema = object(0);
    if (chance(3)) {
      schema["$defs"]["node"] = {
          {"type", "object"},
          {"properties",
           {{"v", scalar()}, {"next", {{"anyOf", {{{"$ref", "#/$defs/node"}}, {{"type", "null"}}}}}}}},
          {"required", {"v", "next"}},
          {"additionalProperties", false}};
      schema["properties"]["list"] = {{"$ref", "#/$defs/node"}};
      schema["required"].push_back("list");
    }
    return schema;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  bool chance(int one_in) { return below(one_in) == 0; }

  Json any(int depth) {
    const int kind = below(depth >= 3 ? 6 : 10);
    if (kind < 6) return scalar();
    if (kind == 6) return array(depth);
    if (kind == 7) return branches(depth);
    if (kind == 8) {
      // A closed object would forbid what the other schema requires.
      Json open = object(depth + 1);
      open.erase("additionalProperties");
      return {{"allOf", {open, {{"properties", {{"extra", scalar()}}}, {"required", {"extra"}}}}}};
    }
    return object(depth + 1);
  }

  Json scalar() {
    switch (below(8)) {
      case 0: return {{"type", "boolean"}};
      case 1: return {{"type", {"null", "integer"}}, {"minimum", below(50) - 25}};
      case 2: return integer();
      case 3: return number();
      case 4: return {{"enum", {"red", "grün", 7, nullptr, "a \"b\"\n", 2.5, true}}};
      case 5: return {{"const", chance(2) ? Json("fixed") : Json({{"k", {1, 2}}})}};
      default: return string();
    }
  }

  Json integer() {
    Json schema = {{"type", "integer"}};
    const int low = below(2000) - 1000;
    if (!chance(3)) schema[chance(3) ? "exclusiveMinimum" : "minimum"] = low;
    if (!chance(3)) schema[chance(3) ? "exclusiveMaximum" : "maximum"] = low + 2 + below(3000);
    return schema;
  }

  Json number() {
    Json schema = {{"type", "number"}};
    const double low = (below(4000) - 2000) / 16.0;
    if (!chance(3)) schema[chance(3) ? "exclusiveMinimum" : "minimum"] = low;
    if (!chance(3)) schema[chance(3) ? "exclusiveMaximum" : "maximum"] = low + 0.1 + below(1000) / 7.0;
    return schema;
  }

  Json string() {
    Json schema = {{"type", "string"}};
    const int min = below(4);
    switch (below(6)) {
      case 0: schema["pattern"] = "^[a-z]{1,8}-\\d{2,4}$"; return schema;
      case 1:
        schema["pattern"] = "^(ab|c)*d?$";
        schema["minLength"] = min;
        schema["maxLength"] = min + 1 + below(20);
        return schema;
      case 2: schema["format"] = chance(2) ? "date" : "uuid"; return schema;
      case 3: schema["minLength"] = min; [[fallthrough]];
      default: schema["maxLength"] = min + below(60); return schema;
    }
  }

  Json array(int depth) {
    Json schema = {{"type", "array"}};
    const int min = below(3);
    if (chance(3)) schema["prefixItems"] = {any(depth + 1), scalar()};
    schema["items"] = any(depth + 1);
    if (chance(2)) schema["minItems"] = min;
    schema["maxItems"] = min + below(4);
    return schema;
  }

  Json branches(int depth) {
    // Told apart by a constant, so that exactly one branch holds.
    Json result = Json::array();
    for (int i = 0; i < 2 + below(2); ++i) {
      Json branch = object(depth + 1);
      branch["properties"]["kind"] = {{"const", "kind" + std::to_string(i)}};
      branch["required"].push_back("kind");
      result.push_back(branch);
    }
    return {{chance(2) ? "oneOf" : "anyOf", result}};
  }

  Json object(int depth) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    static const std::vector<std::string> kNames = {"a",   "ab",       "name", "größe",
                                                    "x y", "quote\"d", "id",   "list of"};
    const int count = 1 + below(4);
    for (int i = 0; i < count; ++i) {
      const std::string& name = kNames[static_cast<std::size_t>(below(static_cast<int>(kNames.size())))];
      if (schema["properties"].contains(name)) continue;
      schema["properties"][name] = any(depth + 1);
      if (!chance(3)) schema["required"].push_back(name);
    }
    if (chance(4))
      schema["additionalProperties"] = scalar();
    else if (chance(2))
      schema["additionalProperties"] = false;
    return schema;
  }

  std::mt19937 random_;
};

}  // namespace

Json random_schema(std::uint32_t seed) { return SchemaMaker(seed).root(); }

}  // namespace mererun::testing
