#include "engine/schema_coercion.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/json_text.h"
#include "engine/text_space.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

enum TypeBit : unsigned {
  kString = 1,
  kInteger = 2,
  kNumber = 4,
  kBoolean = 8,
  kObject = 16,
  kArray = 32,
  kNull = 64,
};

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(std::string(key));
  return at == object.end() ? nullptr : &*at;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// Hand-written tool lists also use the names of their programming language, e.g. "int64" or "dict".
unsigned type_named(std::string_view name) {
  constexpr std::pair<std::string_view, TypeBit> kPrefixes[] = {
      {"str", kString},   {"text", kString},   {"char", kString},  {"varchar", kString}, {"enum", kString},
      {"int", kInteger},  {"uint", kInteger},  {"long", kInteger}, {"short", kInteger},  {"num", kNumber},
      {"float", kNumber}, {"double", kNumber}, {"bool", kBoolean}, {"object", kObject},  {"dict", kObject},
      {"map", kObject},   {"array", kArray},   {"list", kArray},   {"tuple", kArray},    {"null", kNull},
  };
  const std::string lowered = lower(name);
  for (const auto& [prefix, bit] : kPrefixes)
    if (lowered.compare(0, prefix.size(), prefix) == 0) return bit;
  return 0;
}

unsigned type_of(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number_integer()) return kInteger;
  if (value.is_number()) return kNumber;
  if (value.is_boolean()) return kBoolean;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  return kNull;
}

/// Collects the types that a schema allows. `root` is what `$ref` counts from.
class TypeCollector {
 public:
  TypeCollector(const Json& root, std::string_view text) : root_(root), text_(text) {}

  void add(const Json& schema) {
    // A bound on visits, for schemas that refer to themselves.
    if (!schema.is_object() || ++visits_ > 256) return;
    const unsigned before = std::exchange(types_, 0);
    add_type(schema);
    add_values(schema);
    for (const char* keyword : {"anyOf", "oneOf", "allOf"})
      if (const Json* branches = find(schema, keyword); branches && branches->is_array())
        for (const Json& branch : *branches) add(branch);
    if (const Json* ref = find(schema, "$ref"); ref && ref->is_string()) add_ref(ref->get<std::string>());
    if (types_ == 0 && find(schema, "properties")) types_ = kObject;
    if (types_ == 0 && find(schema, "items")) types_ = kArray;
    if (const Json* nullable = find(schema, "nullable"); nullable && *nullable == true) types_ |= kNull;
    types_ |= before;
  }

  unsigned types() const { return types_; }
  /// The very text is one of the schema's values.
  bool names_text() const { return names_text_; }

 private:
  void add_type(const Json& schema) {
    const Json* type = find(schema, "type");
    if (!type) return;
    if (type->is_string()) types_ |= type_named(type->get<std::string>());
    if (!type->is_array()) return;
    for (const Json& one : *type)
      if (one.is_string()) types_ |= type_named(one.get<std::string>());
  }

  void add_values(const Json& schema) {
    const bool is_typed = types_ != 0;
    const auto add_value = [&](const Json& value) {
      if (!is_typed) types_ |= type_of(value);
      if (value.is_string() && value.get_ref<const std::string&>() == text_) names_text_ = true;
    };
    if (const Json* value = find(schema, "const")) add_value(*value);
    if (const Json* values = find(schema, "enum"); values && values->is_array())
      for (const Json& value : *values) add_value(value);
  }

  void add_ref(const std::string& ref) {
    if (ref.compare(0, 2, "#/") != 0) return;
    const Json* at = &root_;
    for (std::size_t begin = 2; at && begin <= ref.size();) {
      const std::size_t end = std::min(ref.find('/', begin), ref.size());
      at = find(*at, std::string_view(ref).substr(begin, end - begin));
      begin = end + 1;
    }
    if (at) add(*at);
  }

  const Json& root_;
  std::string_view text_;
  unsigned types_ = 0;
  bool names_text_ = false;
  int visits_ = 0;
};

/// A decimal number in JSON's spelling: no plus, no leading zeros, digits on both sides of the point. The
/// digits are kept, so a number beyond 64 bits stays exact.
std::optional<std::string> number_json(std::string_view text, bool must_be_integer) {
  std::size_t at = 0;
  const auto take_digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return text.substr(begin, at - begin);
  };
  const bool is_negative = !text.empty() && text[0] == '-';
  if (is_negative || (!text.empty() && text[0] == '+')) ++at;
  std::string_view whole = take_digits(), fraction, exponent;
  if (at < text.size() && text[at] == '.') {
    ++at;
    fraction = take_digits();
  }
  if (whole.empty() && fraction.empty()) return std::nullopt;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    const std::size_t begin = at++;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (take_digits().empty()) return std::nullopt;
    exponent = text.substr(begin, at - begin);
  }
  if (at != text.size()) return std::nullopt;
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size()));
  if (must_be_integer) {
    if (!exponent.empty() || fraction.find_first_not_of('0') != std::string_view::npos) return std::nullopt;
    fraction = {};
  }
  std::string json(is_negative && !(must_be_integer && whole.empty()) ? "-" : "");
  json += whole.empty() ? "0" : whole;
  if (!fraction.empty()) json.append(".").append(fraction);
  json += exponent;
  return compact_json(json);
}

bool is_null_text(std::string_view text) { return text == "None" || lower(text) == "null"; }

std::optional<std::string> typed_json(std::string_view text, unsigned types) {
  if (text.empty())
    return (types & kNull) && !(types & kString) ? std::optional<std::string>("null") : std::nullopt;
  // A typed field has no other way to say "nothing"; a string has the word itself.
  if (is_null_text(text) && ((types & kNull) || !(types & kString))) return "null";
  if (types & kInteger)
    if (auto json = number_json(text, true)) return json;
  if (types & kNumber)
    if (auto json = number_json(text, false)) return json;
  if (types & kBoolean) {
    const std::string word = lower(text.substr(0, 6));
    if (word == "true" || word == "false") return word;
  }
  if (((types & kObject) && text[0] == '{') || ((types & kArray) && text[0] == '['))
    return compact_json(text);
  return std::nullopt;
}

const Json* find_argument_schema(const Json& parameters, std::string_view key) {
  if (const Json* properties = find(parameters, "properties"))
    if (const Json* schema = find(*properties, key)) return schema;
  return find(parameters, "additionalProperties");
}

}  // namespace

ToolSchemas::ToolSchemas(std::shared_ptr<const Json> tools) : tools_(std::move(tools)) {
  if (!tools_ || !tools_->is_array()) return;
  for (const Json& entry : *tools_) {
    const Json* inner = find(entry, "function");
    const Json& tool = inner ? *inner : entry;
    const Json* name = find(tool, "name");
    if (!name || !name->is_string()) continue;
    const Json* parameters = find(tool, "parameters");
    if (!parameters) parameters = find(tool, "input_schema");
    if (parameters) parameters_.emplace(name->get<std::string>(), parameters);
  }
}

std::string ToolSchemas::argument_json(std::string_view tool, std::string_view key,
                                       std::string_view text) const {
  const std::string_view trimmed = trim(text);
  const auto parameters = parameters_.find(std::string(tool));
  const Json* schema =
      parameters == parameters_.end() ? nullptr : find_argument_schema(*parameters->second, key);
  unsigned types = 0;
  if (schema) {
    TypeCollector collector(*parameters->second, text);
    collector.add(*schema);
    if (collector.names_text()) return quote_json(text);
    types = collector.types();
  }
  if (types == 0) return trimmed == "null" ? "null" : quote_json(text);
  if (auto json = typed_json(trimmed, types)) return *std::move(json);
  return quote_json(text);
}

}  // namespace mererun
