#include "decode/round_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"

namespace mererun {
namespace {

// Of the logarithm of how far off a round was, this moves the pace, and one part in 2 + n, n rounds of its
// depth seen, its share, as if the measurement had been two rounds; but never less than kLeastRate, since
// texts grow.
constexpr double kPaceRate = 0.2;
constexpr double kLeastRate = 0.12;
constexpr int kMeasurementRounds = 2;
// Rounds of other drafting depths do the same things, so that most holds for them too.
constexpr double kOtherDepths = 0.7;
// How far off a round may seem: one that lost its core says little of the next.
constexpr double kLargestTimeRatio = 2;

constexpr int kFirstSerialGap = 6;
constexpr int kLargestSerialGap = 48;
// Another serial round follows one that was this far from what it should be, and another draft one that was
// so much faster.
constexpr double kSurprise = 1.5;
constexpr int kFirstDraftGap = 256;
constexpr int kLargestDraftGap = 4096;
constexpr int kMostDraftsTried = 8;  // the first evaluates what waits, and its time tells nothing

void validate(const MeasuredCost& cost) {
  const auto is_time = [](double time) { return std::isfinite(time) && time >= 0; };
  const bool verify_holds =
      !cost.verify.empty() && std::all_of(cost.verify.begin(), cost.verify.end(),
                                          [&](double time) { return is_time(time) && time > 0; });
  if (!verify_holds || !is_time(cost.flush) || !is_time(cost.draft_step) || !is_time(cost.waiting_row)) {
    fail_expected(ErrorCode::kInvalidArgument, "measured draft cost", "finite times, verify times above 0",
                  fmt::format("verify {} flush {} draft step {} waiting row {}", fmt::join(cost.verify, " "),
                              cost.flush, cost.draft_step, cost.waiting_row));
  }
}

}  // namespace

RoundTimes::RoundTimes(const MeasuredCost& cost)
    : seen_(cost.verify.size()),
      waiting_row_(cost.waiting_row),
      serial_gap_(kFirstSerialGap),
      draft_gap_(kFirstDraftGap) {
  validate(cost);
  for (std::size_t depth = 0; depth < cost.verify.size(); ++depth) {
    shares_.push_back(cost.verify[depth] +
                      (depth > 0 ? cost.flush + static_cast<double>(depth) * cost.draft_step : 0));
  }
}

void RoundTimes::observe(int depth, double seconds) {
  MERERUN_CHECK(depth >= 0 && depth <= max_depth() && seconds > 0,
                "a round drafts 0..D tokens and takes time");
  const double most = std::log(kLargestTimeRatio);
  const double off = std::clamp(std::log(seconds / of(depth)), -most, most);
  pace_ *= std::exp(kPaceRate * off);
  int& seen = seen_[static_cast<std::size_t>(depth)];
  if (std::abs(off) < most) ++seen;
  const double rate = std::max(kLeastRate, 1.0 / (kMeasurementRounds + seen));
  for (int i = 0; i <= max_depth(); ++i) {
    const double part = i == depth ? 1 : i > 0 && depth > 0 ? kOtherDepths : 0;
    shares_[static_cast<std::size_t>(i)] *= std::exp(part * rate * off);
  }
  has_observed_ = true;
  if (depth > 0) {
    ++rounds_since_serial_;
    if (off > -std::log(kSurprise)) end_serial_run();
    return;
  }
  ++serial_run_;
  if (std::abs(off) < std::log(kSurprise)) {
    if (wants_serial()) serial_gap_ = std::min(2 * serial_gap_, kLargestSerialGap);
    rounds_since_serial_ = 0;
  }
}

void RoundTimes::tried_draft() {
  if (++drafts_tried_ == kMostDraftsTried) end_serial_run();
}

void RoundTimes::end_serial_run() {
  if (wants_draft()) draft_gap_ = std::min(2 * draft_gap_, kLargestDraftGap);
  serial_run_ = drafts_tried_ = 0;
}

}  // namespace mererun
