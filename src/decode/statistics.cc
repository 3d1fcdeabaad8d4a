#include "decode/statistics.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace mererun {

Statistics::Statistics(int max_depth)
    : depth_counts_(static_cast<std::size_t>(max_depth) + 1), accepted_counts_(depth_counts_.size()) {}

void Statistics::record_first_token() {
  MERERUN_CHECK(!is_pending_ && generated_ == 0, "the first token comes once");
  is_pending_ = true;
  generated_ = 1;
}

void Statistics::record_round(const RoundOutcome& round) {
  const int depth = round.choice.depth;
  MERERUN_CHECK(is_pending_, "a round evaluates a pending token");
  MERERUN_CHECK(depth >= 0 && static_cast<std::size_t>(depth) < depth_counts_.size(), "a depth of 0..D");
  MERERUN_CHECK(round.accepted >= 0 && round.accepted <= depth, "a round accepts 0..depth drafts");
  MERERUN_CHECK(round.emitted >= 0 && round.emitted <= round.accepted + 1,
                "a round emits at most A + 1 tokens");
  const int accepted = std::min(round.emitted, round.accepted);
  is_pending_ = round.emitted == round.accepted + 1;
  generated_ += round.emitted;
  drafted_ += depth;
  accepted_ += accepted;
  ++depth_counts_[static_cast<std::size_t>(depth)];
  if (depth == 0) {
    ++serial_rounds_;
    return;
  }
  ++rounds_;
  ++accepted_counts_[static_cast<std::size_t>(accepted)];
  if (round.choice.reason == DepthReason::kProbe) ++probes_;
}

void Statistics::finish() {
  if (is_pending_) ++serial_rounds_;
  is_pending_ = false;
}

std::optional<double> Statistics::acceptance_rate() const {
  if (drafted_ == 0) return std::nullopt;
  return static_cast<double>(accepted_) / static_cast<double>(drafted_);
}

}  // namespace mererun
