#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mererun {

enum class FinishReason { kStop, kLength, kToolCalls, kCancelled, kError };

/// "stop", "length", "tool_calls", "cancelled" or "error".
std::string_view name_of(FinishReason reason);

struct StopOptions {
  std::vector<TokenId> eos_ids = {};           // empty where a benchmark ignores the end of sequence
  std::vector<std::string> stop_strings = {};  // non-empty, valid UTF-8
  std::int64_t max_tokens = 0;                 // >= 1
  bool stops_after_tool_call = false;          // end with the first complete <tool_call>...</tool_call>
  bool starts_in_reasoning = false;            // the output begins inside <think>
};

/// A target choice on its way out.
struct EmittedToken {
  TokenId id = 0;
  std::string_view text;              // what the byte decoder released with it: whole UTF-8, may be empty
  bool completes_constraint = false;  // the request's constraint is satisfied and allows no more
};

/// What one token led to.
struct StopStep {
  bool is_emitted = true;  // false for an end-of-sequence id, which is neither emitted nor counted
  std::string text;        // released now; appends to what was released before, never retracted
  std::optional<FinishReason> finish;  // set when the request is over
  bool is_cut = false;  // the text ends here by rule; what the byte decoder still holds is dropped
};

/// Finds a byte string in a stream, one byte at a time (Knuth, Morris and Pratt 1977).
class StreamMatcher {
 public:
  explicit StreamMatcher(std::string pattern);

  /// True when the stream now ends in the pattern.
  bool feed(char byte);
  /// Length of the longest proper prefix of the pattern that the stream ends in.
  std::size_t partial() const { return matched_; }
  std::size_t size() const { return pattern_.size(); }

 private:
  std::string pattern_;
  std::vector<std::size_t> borders_ = {};  // [size] longest border of each prefix
  std::size_t matched_ = 0;
};

/// Decides when a request ends and which text may leave. Feed it every target choice that is emitted, one by
/// one; drafts that the target refused never come here.
///
/// The first event ends the request. On one token the order is: end of sequence; in its text, byte by byte, a
/// completed stop string (of several the longest) or a completed tool call; a completed constraint; the
/// budget. A stop string is cut from the text; the token that completed it counts. The longest tail that may
/// begin a stop string, `</think>` or `<tool_call>` is held back. The text that leaves does not depend on how
/// it is cut into tokens.
///
/// Thread-safety: thread-compatible.
class StopRules {
 public:
  /// Errors: kInvalidArgument for an empty stop string or max_tokens below 1.
  explicit StopRules(StopOptions options);

  /// No token may follow one that finished the request.
  StopStep accept(const EmittedToken& token);

  /// Gives out the held tail of a request that ends for a reason of the caller's (cancelled, error).
  std::string release_held();

  std::int64_t num_emitted() const { return num_emitted_; }
  /// Emitted tokens up to and including the one that completed `</think>`; 0 when the output began outside
  /// reasoning.
  std::int64_t num_reasoning_tokens() const { return num_reasoning_; }

 private:
  /// Scans text into held_; true when a rule ended it there.
  bool scan(std::string_view text, StopStep& step);
  bool completes_tool_call(char byte);
  std::string release_all_but(std::size_t held);

  StopOptions options_;
  std::vector<StreamMatcher> stops_ = {};
  StreamMatcher reasoning_end_;
  StreamMatcher tool_call_start_;
  StreamMatcher tool_call_end_;
  bool in_reasoning_;
  bool in_tool_call_ = false;
  bool is_finished_ = false;
  std::string held_;  // text not yet released
  std::int64_t num_emitted_ = 0;
  std::int64_t num_reasoning_ = 0;
};

}  // namespace mererun
