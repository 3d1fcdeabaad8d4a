#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "engine/run.h"
#include "server/api_error.h"

namespace mererun {

/// When what happened to a request, in seconds from its admission.
struct ReplyTimes {
  double queue = 0;        // until its first step
  double first_token = 0;  // until its first token; 0 when there was none
  double total = 0;
};

/// Tells a client what comes of its request. `on_step` any number of times, then exactly one of `on_finish`
/// and `on_error`.
///
/// Thread-safety: one thread at a time.
class Reply {
 public:
  virtual ~Reply() = default;
  /// A prefill chunk or a round is done. `pieces` became final in it; there may be none.
  virtual void on_step(const Run& run, const std::vector<OutputPiece>& pieces) = 0;
  virtual void on_finish(const GenerateResult& result, const ReplyTimes& times) = 0;
  virtual void on_error(const ApiError& error) = 0;
};

/// Set when a client is gone; read between steps.
struct CancelFlag {
  std::atomic<bool> is_set{false};
};

}  // namespace mererun
