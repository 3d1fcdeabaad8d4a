#include "server/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api_error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNesting = 128;
// Members of an object are kept in the order they came and looked up one after the other.
constexpr std::uint64_t kMostComparisons = 100'000'000;

/// Nesting and members of a JSON text, found without building it.
void check_shape(std::string_view text) {
  std::vector<std::uint64_t> members;  // of each open object or array
  std::uint64_t comparisons = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      members.push_back(0);
      if (members.size() > kMostNesting) {
        throw ApiError::with(
            400, fmt::format("body: expected at most {} levels of nesting, got more", kMostNesting));
      }
    } else if (c == ':' && !members.empty()) {
      comparisons += members.back()++;
      if (comparisons > kMostComparisons)
        throw ApiError::with(400, "body: expected objects of fewer members, got one of very many");
    } else if ((c == '}' || c == ']') && !members.empty()) {
      members.pop_back();
    }
  }
}

std::string one_of(const std::vector<std::string>& choices) {
  return choices.size() == 1 ? fmt::format("\"{}\"", choices.front())
                             : fmt::format("one of {}", fmt::join(choices, ", "));
}

}  // namespace

Json parse_body(std::string_view text) {
  // The JSON library takes a NUL for the end of the text.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    throw ApiError::with(400, fmt::format("body: expected JSON, got a NUL at byte {}", nul));
  check_shape(text);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw ApiError::with(400, fmt::format("body: expected JSON, got an error at byte {}", error.byte));
  } catch (const Json::exception&) {
    throw ApiError::with(400, "body: expected JSON, got a number beyond all range");
  }
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string excerpt(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string item_path(std::string_view list, std::size_t index) { return fmt::format("{}[{}]", list, index); }

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object())
    throw ApiError::bad_field(where_.empty() ? "body" : where_, "an object", excerpt(object));
}

std::string Fields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
}

void Fields::refuse(std::string_view name, std::string_view expected) const {
  const auto at = object_.find(std::string(name));
  throw ApiError::bad_field(path(name), expected, at == object_.end() ? "nothing" : excerpt(*at));
}

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const auto at = object_.find(std::string(name));
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, IntegerRange range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = range.text();
  std::int64_t number = 0;
  if (value->is_number_unsigned()) {
    if (value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) refuse(name, expected);
    number = value->get<std::int64_t>();
  } else if (value->is_number_integer()) {
    number = value->get<std::int64_t>();
  } else if (value->is_number_float()) {
    const double real = value->get<double>();
    if (real != std::floor(real) || std::abs(real) > 9007199254740992.0) refuse(name, expected);
    number = static_cast<std::int64_t>(real);
  } else {
    refuse(name, expected);
  }
  if (!range.holds(number)) refuse(name, expected);
  return number;
}

std::optional<int> Fields::count(std::string_view name) {
  const auto value = integer(name, {.low = 1, .high = kAnySize});
  if (!value) return std::nullopt;
  return static_cast<int>(std::min<std::int64_t>(*value, INT32_MAX));
}

std::optional<double> Fields::number(std::string_view name, const NumberRange& range) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !range.holds(value->get<double>())) refuse(name, range.text());
  return value->get<double>();
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "a string");
  return value->get<std::string>();
}

std::string Fields::required_text(std::string_view name) {
  auto value = text(name);
  if (!value) refuse(name, "a string");
  return std::move(*value);
}

std::optional<std::string> Fields::choice(std::string_view name, const std::vector<std::string>& choices) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool is_known = value->is_string() &&
                        std::find(choices.begin(), choices.end(), value->get<std::string>()) != choices.end();
  if (!is_known) refuse(name, one_of(choices));
  return value->get<std::string>();
}

std::string Fields::required_choice(std::string_view name, const std::vector<std::string>& choices) {
  auto value = choice(name, choices);
  if (!value) refuse(name, one_of(choices));
  return std::move(*value);
}

const Json* Fields::array(std::string_view name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) refuse(name, "a list");
  return value;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) refuse(name, "an object");
  return value;
}

const Json& Fields::required_object(std::string_view name) {
  const Json* value = object(name);
  if (value == nullptr) refuse(name, "an object");
  return *value;
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : object_.items())
    if (!known_.contains(name)) names.push_back(name);
  return names;
}

}  // namespace mererun
