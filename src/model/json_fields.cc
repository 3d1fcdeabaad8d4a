#include "model/json_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "checkpoint/config_json.h"

namespace mererun {

JsonFields::JsonFields(const nlohmann::json& object, std::string where)
    : object_(&object), where_(std::move(where)) {}

bool JsonFields::has(std::string_view key) const { return find_member(*object_, key) != nullptr; }

int JsonFields::integer(std::string_view key, int low, int high) const {
  return static_cast<int>(require_int(*object_, key, low, high, where_));
}

int JsonFields::integer_or(std::string_view key, int fallback, int low, int high) const {
  return static_cast<int>(optional_int(*object_, key, low, high, where_).value_or(fallback));
}

double JsonFields::number(std::string_view key, const NumberRange& range) const {
  return require_number(*object_, key, range, where_);
}

double JsonFields::number_or(std::string_view key, double fallback, const NumberRange& range) const {
  return maybe_number(key, range).value_or(fallback);
}

std::optional<double> JsonFields::maybe_number(std::string_view key, const NumberRange& range) const {
  return optional_number(*object_, key, range, where_);
}

bool JsonFields::boolean_or(std::string_view key, bool fallback) const {
  return optional_bool(*object_, key, where_).value_or(fallback);
}

std::string JsonFields::text_or(std::string_view key, std::string_view fallback) const {
  return optional_string(*object_, key, where_).value_or(std::string(fallback));
}

std::vector<std::string> JsonFields::texts(std::string_view key) const {
  return optional_strings(*object_, key, where_).value_or(std::vector<std::string>());
}

std::vector<int> JsonFields::integers(std::string_view key, int low, int high) const {
  std::vector<int> numbers;
  if (const auto wide = optional_ints(*object_, key, low, high, where_))
    numbers.assign(wide->begin(), wide->end());
  return numbers;
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const nlohmann::json* member = optional_object(*object_, key, where_);
  if (member == nullptr) return std::nullopt;
  return JsonFields(*member, fmt::format("{}: {}", where_, key));
}

void JsonFields::fail(std::string_view key, std::string_view expected) const {
  constexpr std::size_t kLongest = 60;
  const nlohmann::json* member = find_member(*object_, key);
  std::string got = "no such key";
  if (member != nullptr) got = member->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (got.size() > kLongest) got = got.substr(0, kLongest) + "...";
  fail_expected(ErrorCode::kCorruptData, fmt::format("{}: {}", where_, key), expected, got);
}

}  // namespace mererun
