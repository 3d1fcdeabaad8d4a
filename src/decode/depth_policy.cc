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
  if (!verify_holds || !is_time(cost.flush) || !is_time(cost.draft_step)) {
    fail_expected(ErrorCode::kInvalidArgument, "measured draft cost", "finite times, verify times above 0",
                  fmt::format("verify {} flush {} draft step {}", fmt::join(cost.verify, " "), cost.flush,
                              cost.draft_step));
  }
}

void validate_cost(const FullDepth&, int) {}

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
  double estimate = kFirstEstimate;
  for (int i = 0; i < options_.max_depth; ++i) {
    p_.push_back(estimate);
    estimate *= kDecayPerPosition;
  }
}

DepthChoice DepthPolicy::choose(int cap) const {
  cap = std::min(cap, options_.max_depth);
  if (cap < 1) return {0, DepthReason::kBudget};
  const int depth = std::visit([&](const auto& cost) { return depth_for(cost, cap); }, options_.cost);
  if (depth == 0 && options_.probes && rounds_at_zero_ >= probe_gap_) return {1, DepthReason::kProbe};
  return {depth, DepthReason::kPolicy};
}

int DepthPolicy::depth_for(const FixedCost& cost, int cap) const {
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

int DepthPolicy::depth_for(const MeasuredCost& cost, int cap) const {
  double reach = 1;
  double expected = 0;
  int best = 0;
  double best_rate = 1 / cost.verify[0];
  for (int depth = 1; depth <= cap; ++depth) {
    const auto at = static_cast<std::size_t>(depth);
    reach *= p_[at - 1];
    expected += reach;
    const double rate = (1 + expected) / (cost.verify[at] + cost.flush + depth * cost.draft_step);
    if (rate > best_rate) {
      best = depth;
      best_rate = rate;
    }
  }
  return best;
}

void DepthPolicy::update(DepthChoice choice, int accepted) {
  const int depth = choice.depth;
  MERERUN_CHECK(accepted >= 0 && accepted <= depth && depth <= options_.max_depth,
                "a round accepts 0..depth drafts");
  if (choice.reason == DepthReason::kBudget) return;
  if (depth == 0) {
    ++rounds_at_zero_;
    return;
  }
  rounds_at_zero_ = 0;
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
  if (accepted > 0) {
    probe_gap_ = kFirstProbeGap;
  } else {
    probe_gap_ = std::min(2 * probe_gap_, kLargestProbeGap);
    p_[0] = std::max(kProbeFloor, p_[0]);
  }
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
