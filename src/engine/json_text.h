#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD.
std::string quote_json(std::string_view text);

/// A JSON value without the white space between its tokens; numbers, strings and the order of keys stay as
/// they are written. Nothing when `text` is not JSON, has a number beyond double, or nests deeper than 256:
/// readers down the line recurse.
std::optional<std::string> compact_json(std::string_view text);

struct JsonMember {
  std::string key;
  std::string_view value;  // a view into the object's text
};

/// The members of an object that compact_json returned, in order; repeated keys stay repeated.
std::vector<JsonMember> members_of_compact_object(std::string_view object);

/// The value of a JSON string literal; nothing when `literal` is not one.
std::optional<std::string> unquote_json(std::string_view literal);

}  // namespace mererun
