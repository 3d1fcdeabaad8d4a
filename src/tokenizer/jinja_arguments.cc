#include "tokenizer/jinja_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace mererun::jinja {

BoundArguments::BoundArguments(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(fmt::format("{}: expected at most {} arguments, got {}", function, names_.size(),
                     arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) fail(fmt::format("{}: expected no argument named '{}'", function, name));
    const Value*& slot = values_[static_cast<std::size_t>(it - names_.begin())];
    if (slot != nullptr) fail(fmt::format("{}: expected argument '{}' once, got two", function, name));
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr)
      fail(fmt::format("{}: expected an argument '{}', got none", function, names_[i]));
  }
}

bool BoundArguments::truth(std::size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : truthy(*values_[index]);
}

std::int64_t BoundArguments::integer(std::size_t index, std::int64_t fallback) const {
  if (values_[index] == nullptr) return fallback;
  return to_index(*values_[index], fmt::format("{}: argument '{}'", function_, names_[index]));
}

const std::string& BoundArguments::text(std::size_t index) const {
  const Value& value = *values_[index];
  if (!value.is_string()) {
    fail(fmt::format("{}: expected text as argument '{}', got a value of type {}", function_, names_[index],
                     type_name(value)));
  }
  return value.as_string();
}

std::string_view BoundArguments::text(std::size_t index, std::string_view fallback) const {
  return values_[index] == nullptr ? fallback : std::string_view(text(index));
}

std::int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail(value.undefined_reason());
  if (!value.is_integral()) {
    fail(fmt::format("{}: expected an integer, got a value of type {}", what, type_name(value)));
  }
  return static_cast<std::int64_t>(std::clamp<Integer>(value.as_integer(),
                                                       std::numeric_limits<std::int64_t>::min(),
                                                       std::numeric_limits<std::int64_t>::max()));
}

}  // namespace mererun::jinja
