#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "decode/depth_policy.h"

namespace mererun {

/// One evaluated round as the generator saw it.
struct RoundOutcome {
  DepthChoice choice;  // depth 0 is a serial step
  int accepted = 0;    // A, drafts equal to the target's choices
  int emitted = 0;     // tokens given out, 0..A + 1; fewer than A + 1 when an event cut the walk
};

/// Counts of one request. They count emitted tokens only: what stood behind a cut was never output. At every
/// moment generated = rounds + serial rounds + accepted drafts + (1 while a token is pending).
///
/// Thread-safety: thread-compatible.
class Statistics {
 public:
  /// `max_depth` is D.
  explicit Statistics(int max_depth);

  /// The token chosen from the prompt's logits was emitted and is pending.
  void record_first_token();

  /// A round evaluated the pending token.
  void record_round(const RoundOutcome& round);

  /// The request is over; a token still pending needed no evaluation and counts as a serial round.
  void finish();

  std::int64_t generated() const { return generated_; }
  std::int64_t rounds() const { return rounds_; }                // drafted verifications
  std::int64_t serial_rounds() const { return serial_rounds_; }  // emitted target choices not followed by one
  std::int64_t probes() const { return probes_; }
  std::int64_t drafted() const { return drafted_; }
  std::int64_t accepted() const { return accepted_; }
  /// accepted / drafted; none when nothing was drafted.
  std::optional<double> acceptance_rate() const;

  /// [D + 1] evaluated rounds by depth.
  const std::vector<std::int64_t>& depth_counts() const { return depth_counts_; }
  /// [D + 1] drafted rounds by accepted drafts that were emitted.
  const std::vector<std::int64_t>& accepted_counts() const { return accepted_counts_; }

 private:
  bool is_pending_ = false;
  std::int64_t generated_ = 0;
  std::int64_t rounds_ = 0;
  std::int64_t serial_rounds_ = 0;
  std::int64_t probes_ = 0;
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
  std::vector<std::int64_t> depth_counts_;
  std::vector<std::int64_t> accepted_counts_;
};

}  // namespace mererun
