#pragma once

#include <string>

namespace mererun {

/// Reads a conversation's turns, one line each, from a file descriptor. A signal ends the wait, so that
/// Ctrl-C at the prompt is seen at once.
///
/// Thread-safety: one thread only.
class TurnReader {
 public:
  enum class Result { kTurn, kEnd, kInterrupted, kGivenUp };

  explicit TurnReader(int descriptor) : descriptor_(descriptor) {}

  /// The next line without its end, in `turn`; a last line without an end counts. What was read of a line
  /// before an interrupt is dropped, as the terminal drops it. An interrupt with no turn since the last one
  /// gives the conversation up. Errors: kIo.
  Result read(std::string& turn);

 private:
  int descriptor_;
  bool is_at_end_ = false;
  bool was_interrupted_ = false;  // since the last turn
  std::string buffer_;
};

}  // namespace mererun
