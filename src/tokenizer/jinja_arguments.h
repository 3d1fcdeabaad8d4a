#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace mererun::jinja {

/// The arguments of one call matched with parameter names. Fails when there are too many, an unknown name,
/// one given twice, or fewer than `required`.
class BoundArguments {
 public:
  BoundArguments(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> names, std::size_t required = 0);

  /// Null when not given.
  const Value* operator[](std::size_t index) const { return values_[index]; }
  const Value& value(std::size_t index) const { return *values_[index]; }

  // With a fallback for arguments that are not given. The last three fail for other types.
  bool truth(std::size_t index, bool fallback) const;
  std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  const std::string& text(std::size_t index) const;
  std::string_view text(std::size_t index, std::string_view fallback) const;
  /// True when given and not none.
  bool has(std::size_t index) const { return values_[index] != nullptr && !values_[index]->is_none(); }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

/// An integer cut to 64 bits; fails for other types, naming `what`.
std::int64_t to_index(const Value& value, std::string_view what);

}  // namespace mererun::jinja
