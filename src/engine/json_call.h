#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mererun {

struct ParsedCall {
  std::string stray;      // text inside the call that belongs to no parameter
  std::string name;       // as the model wrote it, known or not
  std::string arguments;  // one compact JSON object
};

/// The call that `{"name": …, "arguments": {…}}` stands for; `parameters` is read like `arguments`, and a
/// string of JSON like the object in it. Nothing for any other text.
std::optional<ParsedCall> parse_json_call(std::string_view text);

/// Finds where a JSON object ends, as its text arrives. It counts brackets and looks past strings, no more:
/// what it delimits may still not be JSON.
///
/// Thread-safety: one thread at a time.
class JsonExtent {
 public:
  enum class Status { kOpen, kComplete, kBroken };

  void begin() { *this = {}; }
  /// Reads from the front of `text` and returns how much belongs to the object. It stops behind the last
  /// bracket, or before a character that cannot be there: a raw control character in a string, or a '<'
  /// outside of one, where the markup has taken over.
  std::size_t scan(std::string_view text);
  Status status() const { return status_; }
  bool in_string() const { return in_string_; }

 private:
  Status status_ = Status::kOpen;
  std::size_t depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
};

}  // namespace mererun
