#include "tests/grammar/schema_validator.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
  if (type == "number") return value.is_number();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

std::size_t characters(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

bool is_date(const std::string& text) {
  static const std::regex kForm(R"((\d{4})-(\d\d)-(\d\d))");
  std::smatch parts;
  if (!std::regex_match(text, parts, kForm)) return false;
  const int year = std::stoi(parts[1]), month = std::stoi(parts[2]), day = std::stoi(parts[3]);
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const int days[] = {31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  bool check(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, argument] : schema.items())
      if (!check_keyword(schema, keyword, argument, value)) return false;
    return true;
  }

 private:
  int branches(const Json& schemas, const Json& value) const {
    int count = 0;
    for (const Json& one : schemas) count += check(one, value) ? 1 : 0;
    return count;
  }

  bool check_keyword(const Json& schema, const std::string& keyword, const Json& argument,
                     const Json& value) const {
    if (keyword == "$defs" || keyword == "title" || keyword == "description") return true;
    if (keyword == "$ref")
      return check(
          argument == "#" ? root_ : root_.at(Json::json_pointer(argument.get<std::string>().substr(1))),
          value);
    if (keyword == "anyOf") return branches(argument, value) >= 1;
    if (keyword == "oneOf") return branches(argument, value) == 1;
    if (keyword == "allOf") return branches(argument, value) == static_cast<int>(argument.size());
    if (keyword == "const") return value == argument;
    if (keyword == "enum") {
      for (const Json& one : argument)
        if (one == value) return true;
      return false;
    }
    if (keyword == "type") {
      if (argument.is_string()) return has_type(value, argument);
      for (const Json& one : argument)
        if (has_type(value, one)) return true;
      return false;
    }
    return check_string(keyword, argument, value) && check_number(keyword, argument, value) &&
           check_array(schema, keyword, argument, value) && check_object(schema, keyword, argument, value) &&
           is_known(keyword);
  }

  static bool is_known(const std::string& keyword) {
    static const std::set<std::string> kKnown = {
        "minLength", "maxLength",        "pattern",          "format",   "minimum",
        "maximum",   "exclusiveMinimum", "exclusiveMaximum", "items",    "minItems",
        "maxItems",  "prefixItems",      "properties",       "required", "additionalProperties"};
    if (!kKnown.contains(keyword)) throw std::invalid_argument(keyword);
    return true;
  }

  static bool check_string(const std::string& keyword, const Json& argument, const Json& value) {
    if (!value.is_string()) return true;
    const auto text = value.get<std::string>();
    if (keyword == "minLength") return characters(text) >= argument.get<std::size_t>();
    if (keyword == "maxLength") return characters(text) <= argument.get<std::size_t>();
    if (keyword == "pattern") return std::regex_search(text, std::regex(argument.get<std::string>()));
    if (keyword == "format") {
      if (argument == "date") return is_date(text);
      static const std::regex kUuid("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}");
      if (argument == "uuid") return std::regex_match(text, kUuid);
      throw std::invalid_argument(argument.get<std::string>());
    }
    return true;
  }

  static bool check_number(const std::string& keyword, const Json& argument, const Json& value) {
    if (!value.is_number()) return true;
    const bool exact = value.is_number_integer() && argument.is_number_integer();
    const auto order = [&] {
      if (exact) {
        const auto a = value.get<std::int64_t>(), b = argument.get<std::int64_t>();
        return a < b ? -1 : a > b ? 1 : 0;
      }
      const double a = value.get<double>(), b = argument.get<double>();
      return a < b ? -1 : a > b ? 1 : 0;
    };
    if (keyword == "minimum") return order() >= 0;
    if (keyword == "maximum") return order() <= 0;
    if (keyword == "exclusiveMinimum") return order() > 0;
    if (keyword == "exclusiveMaximum") return order() < 0;
    return true;
  }

  bool check_array(const Json& schema, const std::string& keyword, const Json& argument,
                   const Json& value) const {
    if (!value.is_array()) return true;
    if (keyword == "minItems") return value.size() >= argument.get<std::size_t>();
    if (keyword == "maxItems") return value.size() <= argument.get<std::size_t>();
    const std::size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (keyword == "prefixItems") {
      for (std::size_t i = 0; i < std::min(first, value.size()); ++i)
        if (!check(argument[i], value[i])) return false;
    }
    if (keyword == "items") {
      for (std::size_t i = first; i < value.size(); ++i)
        if (!check(argument, value[i])) return false;
    }
    return true;
  }

  bool check_object(const Json& schema, const std::string& keyword, const Json& argument,
                    const Json& value) const {
    if (!value.is_object()) return true;
    if (keyword == "required") {
      for (const Json& name : argument)
        if (!value.contains(name.get<std::string>())) return false;
    }
    if (keyword == "properties") {
      for (const auto& [name, inner] : argument.items())
        if (value.contains(name) && !check(inner, value[name])) return false;
    }
    if (keyword == "additionalProperties") {
      for (const auto& [name, member] : value.items())
        if (!(schema.contains("properties") && schema["properties"].contains(name)) &&
            !check(argument, member))
          return false;
    }
    return true;
  }

  const Json& root_;
};

}  // namespace

bool is_valid(const Json& root, const Json& schema, const Json& value) {
  return Validator(root).check(schema, value);
}

}  // namespace mererun::testing
