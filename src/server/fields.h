#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/number_range.h"

namespace mererun {

/// Parses a request body. Errors: ApiError 400 for text that is no JSON or no UTF-8, nests deeper than 128
/// levels, or has objects of so many members that reading them would take quadratic time.
nlohmann::ordered_json parse_body(std::string_view text);

/// JSON as one line; bytes that are no UTF-8 become U+FFFD.
std::string dump(const nlohmann::ordered_json& value);

/// A value as a message shows it: its JSON text, cut after 60 bytes.
std::string excerpt(const nlohmann::ordered_json& value);

/// "messages[2]"
std::string item_path(std::string_view list, std::size_t index);

/// The members of one JSON object of a request, read by name and checked. A member that is null counts as
/// absent. Errors, in all readers: ApiError 400 naming the field, what was expected, what came.
///
/// Thread-safety: one thread only; the object must outlive the reader.
class Fields {
 public:
  /// `where` is the object's own name in messages: empty for the body, "messages[2]" for an inner one.
  Fields(const nlohmann::ordered_json& object, std::string where);

  /// Null when absent. Marks the name as known.
  const nlohmann::ordered_json* find(std::string_view name);
  std::optional<bool> boolean(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, IntegerRange range);
  /// A number of tokens, at least 1; what exceeds an int is as good as its largest.
  std::optional<int> count(std::string_view name);
  std::optional<double> number(std::string_view name, const NumberRange& range);
  std::optional<std::string> text(std::string_view name);
  std::string required_text(std::string_view name);
  /// One of `choices`.
  std::optional<std::string> choice(std::string_view name, const std::vector<std::string>& choices);
  std::string required_choice(std::string_view name, const std::vector<std::string>& choices);
  /// An array; null when absent.
  const nlohmann::ordered_json* array(std::string_view name);
  const nlohmann::ordered_json* object(std::string_view name);
  const nlohmann::ordered_json& required_object(std::string_view name);

  /// "messages[2].content"
  std::string path(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view expected) const;
  /// Names that were in the object and that nobody asked for.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::ordered_json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace mererun
