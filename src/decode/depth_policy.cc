#include "decode/depth_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.h"

namespace mererun {

namespace {

constexpr double kFirstEstimate = 0.85;
constexpr double kDecayPerPosition = 0.98;
constexpr double kRate = 0.15;
// A full round says nothing of the draft after its last one; that estimate rises, but not to certainty.
constexpr double kOptimismCeiling = 0.95;

// How much one observed round moves the time of its own depth, of other drafting depths and of serial rounds:
// a machine that slows down or was measured at another moment does so for all, most alike for depths whose
// rounds do the same things. And how far off a round may seem: one that lost its core says little of the
// next.
constexpr double kOwnTimeRate = 0.15;
constexpr double kDraftingTimeRate = 0.1;
constexpr double kSerialTimeRate = 0.05;
constexpr double kLargestTimeRatio = 2;
// Of so many drafting rounds one is serial, so that the time to compare with is of this text's length and
// this moment.
constexpr int kSerialObservationGap = 48;

constexpr int kFirstProbeGap = 16;
constexpr int kLargestProbeGap = 256;
// One success from here lifts p[0] to 0.19, above the default cost ratio.
constexpr double kProbeFloor = 0.05;

bool is_cost_ratio(double ratio) { return std::isfinite(ratio) && ratio > 0 && ratio <= 5; }

void validate_cost(const FixedCost& cost, int) {
  if (!is_cost_ratio(cost.ratio)) {
    fail_expected(ErrorCode::kInvalidArgument, "draft cost ratio", "a number above 0 and at most 5",
                  fmt::format("{}", cost.ratio));
  }
}

void validate_cost(const MeasuredCost& cost, int max_depth) {
  const auto is_time = [](double time) { return std::isfinite(time) && time >= 0; };
  if (cost.verify.size() < static_cast<std::size_t>(max_depth) + 1) {
    fail_expected(ErrorCode::kInvalidArgument, "measured draft cost",
                  fmt::format("{} verify times", max_depth + 1), fmt::format("{}", cost.verify.size()));
  }
  const bool verify_holds = std::all_of(cost.verify.begin(), cost.verify.end(),
                                        [&](double time) { return is_time(time) && time > 0; });
  if (!verify_holds || !is_time(cost.flush) || !is_time(cost.draft_step) || !is_time(cost.waiting_row)) {
    fail_expected(ErrorCode::kInvalidArgument, "measured draft cost", "finite times, verify times above 0",
                  fmt::format("verify {} flush {} draft step {} waiting row {}", fmt::join(cost.verify, " "),
                              cost.flush, cost.draft_step, cost.waiting_row));
  }
}

void validate_cost(const FullDepth&, int) {}

std::vector<double> round_times(const MeasuredCost& cost, int max_depth) {
  std::vector<double> times;
  for (int depth = 0; depth <= max_depth; ++depth) {
    times.push_back(cost.verify[static_cast<std::size_t>(depth)] +
                    (depth > 0 ? cost.flush + depth * cost.draft_step : 0));
  }
  return times;
}

}  // namespace

std::string_view name_of(const CostModel& cost) {
  if (std::holds_alternative<MeasuredCost>(cost)) return "measured";
  return std::holds_alternative<FixedCost>(cost) ? "fixed" : "full";
}

std::optional<double> parse_cost_ratio(std::string_view text) {
  double ratio = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ratio);
  if (error != std::errc{} || end != text.data() + text.size() || !is_cost_ratio(ratio)) return std::nullopt;
  return ratio;
}

DepthPolicy::DepthPolicy(DepthPolicyOptions options)
    : options_(std::move(options)), probe_gap_(kFirstProbeGap) {
  if (options_.max_depth < 0) {
    fail_expected(ErrorCode::kInvalidArgument, "draft depth", "at least 0",
                  fmt::format("{}", options_.max_depth));
  }
  std::visit([this](const auto& cost) { validate_cost(cost, options_.max_depth); }, options_.cost);
  if (const auto* cost = std::get_if<MeasuredCost>(&options_.cost))
    round_time_ = round_times(*cost, options_.max_depth);
  double estimate = kFirstEstimate;
  for (int i = 0; i < options_.max_depth; ++i) {
    p_.push_back(estimate);
    estimate *= kDecayPerPosition;
  }
}

DepthChoice DepthPolicy::choose(int cap, DraftOutlook outlook) const {
  cap = std::min(cap, options_.max_depth);
  if (cap < 1) return {0, DepthReason::kBudget};
  const int depth =
      std::visit([&](const auto& cost) { return depth_for(cost, cap, outlook); }, options_.cost);
  if (depth == 0 && options_.probes && rounds_at_zero_ >= probe_gap_ && may_probe(cap, outlook))
    return {1, DepthReason::kProbe};
  if (depth > 0 && has_observed_ && rounds_since_serial_ >= kSerialObservationGap)
    return {0, DepthReason::kPolicy};
  return {depth, DepthReason::kPolicy};
}

/// Whether tokens at `token_time` instead of the serial time make up for the transitions that wait beyond
/// those a drafting round leaves anyway.
bool DepthPolicy::earns(const MeasuredCost& cost, double token_time, DraftOutlook outlook) const {
  const int backlog = outlook.waiting - (options_.max_depth + 1);
  if (backlog <= 0) return true;
  const double gain = static_cast<double>(outlook.remaining) * (round_time_[0] - token_time);
  return gain > backlog * cost.waiting_row;
}

/// Whether drafts that are always right would earn back what a probe has to evaluate first.
bool DepthPolicy::may_probe(int cap, DraftOutlook outlook) const {
  const auto* cost = std::get_if<MeasuredCost>(&options_.cost);
  if (cost == nullptr) return true;
  double best_time = round_time_[0];
  for (int depth = 1; depth <= cap; ++depth)
    best_time = std::min(best_time, round_time_[static_cast<std::size_t>(depth)] / (1 + depth));
  return earns(*cost, best_time, outlook);
}

void DepthPolicy::observe(int depth, double seconds) {
  if (round_time_.empty()) return;
  MERERUN_CHECK(depth >= 0 && depth <= options_.max_depth, "a round drafts 0..D tokens");
  has_observed_ = true;
  const double expected = round_time_[static_cast<std::size_t>(depth)];
  const double change = std::clamp(seconds / expected, 1 / kLargestTimeRatio, kLargestTimeRatio) - 1;
  for (int i = 0; i <= options_.max_depth; ++i) {
    const double rate = i == depth             ? kOwnTimeRate
                        : i == 0 || depth == 0 ? kSerialTimeRate
                                               : kDraftingTimeRate;
    round_time_[static_cast<std::size_t>(i)] *= 1 + rate * change;
  }
}

int DepthPolicy::depth_for(const FixedCost& cost, int cap, DraftOutlook) const {
  double reach = 1;
  double expected = 0;
  int depth = 0;
  while (depth < cap) {
    reach *= p_[static_cast<std::size_t>(depth)];
    if (reach <= cost.ratio * (1 + expected) / (1 + depth * cost.ratio)) break;
    expected += reach;
    ++depth;
  }
  return depth;
}

int DepthPolicy::depth_for(const MeasuredCost& cost, int cap, DraftOutlook outlook) const {
  double reach = 1;
  double expected = 0;
  int best = 0;
  double best_rate = 1 / round_time_[0];
  for (int depth = 1; depth <= cap; ++depth) {
    reach *= p_[static_cast<std::size_t>(depth) - 1];
    expected += reach;
    const double rate = (1 + expected) / round_time_[static_cast<std::size_t>(depth)];
    if (rate > best_rate) {
      best = depth;
      best_rate = rate;
    }
  }
  return best > 0 && !earns(cost, 1 / best_rate, outlook) ? 0 : best;
}

void DepthPolicy::update(DepthChoice choice, int accepted) {
  const int depth = choice.depth;
  MERERUN_CHECK(accepted >= 0 && accepted <= depth && depth <= options_.max_depth,
                "a round accepts 0..depth drafts");
  if (choice.reason == DepthReason::kBudget) return;
  if (depth == 0) {
    ++rounds_at_zero_;
    rounds_since_serial_ = 0;
    return;
  }
  rounds_at_zero_ = 0;
  ++rounds_since_serial_;
  for (int i = 0; i < accepted; ++i) {
    double& p = p_[static_cast<std::size_t>(i)];
    p += kRate * (1 - p);
  }
  if (accepted < options_.max_depth) {
    double& p = p_[static_cast<std::size_t>(accepted)];
    if (accepted < depth) {
      p -= kRate * p;
    } else if (p < kOptimismCeiling) {
      p += kRate * (kOptimismCeiling - p);
    }
  }
  if (choice.reason != DepthReason::kProbe) return;
  if (accepted == 0) p_[0] = std::max(kProbeFloor, p_[0]);
  const bool pays = accepted > 0 && choose(options_.max_depth).depth > 0;
  if (accepted > 0 && !pays && may_go_on_probing()) {
    rounds_at_zero_ = probe_gap_;
    return;
  }
  // Probes that end before drafting pays have told all they can for now.
  probe_gap_ = pays ? kFirstProbeGap : std::min(2 * probe_gap_, kLargestProbeGap);
}

/// Whether a right draft alone is worth its time: then probes that are right go on until drafting pays.
bool DepthPolicy::may_go_on_probing() const {
  return !round_time_.empty() && round_time_[1] < 2 * round_time_[0];
}

int draft_cap(int max_depth, std::int64_t budget, Position context, Position committed) {
  const std::int64_t room = static_cast<std::int64_t>(context) - 1 - committed;
  return static_cast<int>(
      std::max<std::int64_t>(0, std::min({static_cast<std::int64_t>(max_depth), budget - 1, room})));
}

BlockSize resolve_block_size(std::optional<int> requested, int default_width, int width_cap) {
  if (requested && *requested < 2) {
    fail_expected(ErrorCode::kInvalidArgument, "MTP block size", "an integer of at least 2",
                  fmt::format("{}", *requested));
  }
  return {std::min(requested.value_or(default_width), width_cap), requested};
}

}  // namespace mererun
