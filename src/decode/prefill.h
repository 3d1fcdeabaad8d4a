#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "cache/sequence_state.h"
#include "decode/history_mode.h"
#include "model/model.h"

namespace mererun {

struct PrefillOptions {
  int chunk = 1024;                  // chunks end at absolute multiples of it
  std::vector<Position> stops = {};  // further chunk ends, ascending: where snapshots are taken
  HistoryMode history = HistoryMode::kStreaming;
};

/// Evaluates a prompt into a sequence state, chunk after chunk, and feeds the draft history on the way.
///
/// The state may already hold a prefix of the prompt; evaluation continues there. Any chunking gives the same
/// bits. Thread-safety: one thread at a time.
class Prefill {
 public:
  /// All arguments must outlive it. Errors: kInvalidArgument if the prompt is empty or shorter than the
  /// state.
  Prefill(Model& model, SequenceState& state, std::span<const TokenId> prompt, PrefillOptions options);

  bool is_done() const { return state_.length() == static_cast<int>(prompt_.size()); }
  /// Evaluates up to the next chunk end.
  void step();
  void run() {
    while (!is_done()) step();
  }

 private:
  int edge_after(Position at) const;
  void expect_from(Position at);

  Model& model_;
  SequenceState& state_;
  std::span<const TokenId> prompt_;
  PrefillOptions options_;
};

}  // namespace mererun
