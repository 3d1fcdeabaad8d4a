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

// What drafting rounds yielded of late starts as so many serial rounds, and a round keeps this share of it.
constexpr double kFirstYield = 4;
constexpr double kYieldKept = 0.95;

// A right probe gives two tokens. Times are wrong by this much at first, and probes correct them.
constexpr double kTolerableProbe = 2.25;
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

void validate_cost(const std::shared_ptr<RoundTimes>& times, int max_depth) {
  if (times == nullptr || times->max_depth() < max_depth) {
    fail_expected(ErrorCode::kInvalidArgument, "measured draft cost",
                  fmt::format("times of rounds with up to {} drafts", max_depth),
                  times == nullptr ? "none" : fmt::format("up to {}", times->max_depth()));
  }
}

void validate_cost(const FullDepth&, int) {}

}  // namespace

std::string_view name_of(const CostModel& cost) {
  if (std::holds_alternative<std::shared_ptr<RoundTimes>>(cost)) return "measured";
  return std::holds_alternative<FixedCost>(cost) ? "fixed" : "full";
}

std::optional<double> parse_cost_ratio(std::string_view text) {
  double ratio = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ratio);
  if (error != std::errc{} || end != text.data() + text.size() || !is_cost_ratio(ratio)) return std::nullopt;
  return ratio;
}

DepthPolicy::DepthPolicy(DepthPolicyOptions options)
    : options_(std::move(options)), tokens_(kFirstYield), probe_gap_(kFirstProbeGap) {
  if (options_.max_depth < 0) {
    fail_expected(ErrorCode::kInvalidArgument, "draft depth", "at least 0",
                  fmt::format("{}", options_.max_depth));
  }
  std::visit([this](const auto& cost) { validate_cost(cost, options_.max_depth); }, options_.cost);
  rounds_.resize(static_cast<std::size_t>(options_.max_depth) + 1);
  rounds_[0] = kFirstYield;
  double estimate = kFirstEstimate;
  for (int i = 0; i < options_.max_depth; ++i) {
    p_.push_back(estimate);
    estimate *= kDecayPerPosition;
  }
  if (may_go_on_probing()) rounds_at_zero_ = probe_gap_;  // a text is tried once before it is given up
}

RoundTimes* DepthPolicy::times() const {
  const auto* times = std::get_if<std::shared_ptr<RoundTimes>>(&options_.cost);
  return times == nullptr ? nullptr : times->get();
}

DepthChoice DepthPolicy::planned(int cap, DraftOutlook outlook) const {
  return std::visit([&](const auto& cost) { return depth_for(cost, cap, outlook); }, options_.cost);
}

DepthChoice DepthPolicy::choose(int cap, DraftOutlook outlook) const {
  cap = std::min(cap, options_.max_depth);
  if (cap < 1) return {0, DepthReason::kBudget};
  const DepthChoice choice = planned(cap, outlook);
  if (choice.depth == 0 && options_.probes) {
    const bool is_due = rounds_at_zero_ >= probe_gap_ && may_probe(cap, outlook);
    if (is_due || (times() != nullptr && times()->wants_draft()))
      return {.depth = 1, .reason = DepthReason::kProbe, .limit = 1};
  }
  if (choice.depth > 0 && times() != nullptr && times()->wants_serial()) return {0, DepthReason::kPolicy};
  return choice;
}

/// Whether tokens at `token_time` instead of the serial time make up for the transitions that wait beyond
/// those a drafting round leaves anyway.
bool DepthPolicy::earns(const RoundTimes& times, double token_time, DraftOutlook outlook) const {
  const int backlog = outlook.waiting - (options_.max_depth + 1);
  if (backlog <= 0) return true;
  const double gain = static_cast<double>(outlook.remaining) * (times.of(0) - token_time);
  return gain > backlog * times.of_waiting_row();
}

/// Whether drafts that are always right would earn back what a probe has to evaluate first.
bool DepthPolicy::may_probe(int cap, DraftOutlook outlook) const {
  if (times() == nullptr) return true;
  double best_time = times()->of(0);
  for (int depth = 1; depth <= cap; ++depth)
    best_time = std::min(best_time, times()->of(depth) / (1 + depth));
  return earns(*times(), best_time, outlook);
}

void DepthPolicy::observe(int depth, double seconds) {
  if (times() != nullptr) times()->observe(depth, seconds);
}

DepthChoice DepthPolicy::depth_for(const FixedCost& cost, int cap, DraftOutlook) const {
  double reach = 1;
  double expected = 0;
  int depth = 0;
  while (depth < cap) {
    reach *= p_[static_cast<std::size_t>(depth)];
    if (reach <= cost.ratio * (1 + expected) / (1 + depth * cost.ratio)) break;
    expected += reach;
    ++depth;
  }
  return {.depth = depth};
}

DepthPolicy::Best DepthPolicy::best_of(const RoundTimes& times, int cap) const {
  double reach = 1;
  double expected = 0;
  Best best{0, 1 / times.of(0)};
  for (int depth = 1; depth <= cap; ++depth) {
    reach *= p_[static_cast<std::size_t>(depth) - 1];
    expected += reach;
    const double rate = (1 + expected) / times.of(depth);
    if (rate > best.rate) best = {depth, rate};
  }
  return best;
}

/// Tokens that drafting rounds yielded of late in the time of a serial round.
double DepthPolicy::yield(const RoundTimes& times) const {
  double time = 0;
  for (int depth = 0; depth <= options_.max_depth; ++depth)
    time += rounds_[static_cast<std::size_t>(depth)] * (times.of(depth) / times.of(0));
  return tokens_ / time;
}

/// Tokens a unit of time while drafting goes on: by the estimates, or as it did.
double DepthPolicy::rate_of(const RoundTimes& times, const Best& best) const {
  return std::max(best.rate, yield(times) / times.of(0));
}

DepthChoice DepthPolicy::depth_for(const std::shared_ptr<RoundTimes>& times, int cap,
                                   DraftOutlook outlook) const {
  const Best best = best_of(*times, cap);
  const bool pays = best.depth > 0 || yield(*times) > 1;
  if (!pays || !earns(*times, 1 / rate_of(*times, best), outlook)) return {};
  DepthChoice choice{.depth = std::max(best.depth, 1)};
  choice.limit = choice.depth;
  while (choice.limit < cap && goes_on(choice.limit, 1)) ++choice.limit;
  return choice;
}

bool DepthPolicy::goes_on(int drafted, double reach) const {
  if (drafted >= options_.max_depth) return false;
  if (times() == nullptr) return true;
  const double tokens = reach * p_[static_cast<std::size_t>(drafted)];
  return tokens > times()->of_one_more() * rate_of(*times(), best_of(*times(), options_.max_depth));
}

void DepthPolicy::update(DepthChoice choice, int accepted) {
  const int depth = choice.depth;
  MERERUN_CHECK(accepted >= 0 && accepted <= depth && depth <= options_.max_depth,
                "a round accepts 0..depth drafts");
  if (choice.reason == DepthReason::kBudget) return;
  if (choice.reason == DepthReason::kProbe && times() != nullptr && times()->wants_draft())
    times()->tried_draft();
  if (depth == 0) {
    ++rounds_at_zero_;
    return;
  }
  rounds_at_zero_ = 0;
  if (choice.limit > 0) {
    for (double& rounds : rounds_) rounds *= kYieldKept;
    rounds_[static_cast<std::size_t>(depth)] += 1;
    tokens_ = kYieldKept * tokens_ + 1 + accepted;
  }
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
  const bool pays = accepted > 0 && planned(options_.max_depth, {}).depth > 0;
  if (accepted > 0 && !pays && may_go_on_probing()) {
    rounds_at_zero_ = probe_gap_;
    return;
  }
  // Probes that end before drafting pays have told all they can for now.
  probe_gap_ = pays ? kFirstProbeGap : std::min(2 * probe_gap_, kLargestProbeGap);
}

/// Whether a right draft alone is worth its time: then probes that are right go on until drafting pays.
bool DepthPolicy::may_go_on_probing() const {
  return times() != nullptr && times()->max_depth() > 0 && times()->of(1) < kTolerableProbe * times()->of(0);
}

int draft_cap(int max_depth, std::int64_t budget, Position context, Position committed) {
  const std::int64_t room = static_cast<std::int64_t>(context) - 1 - committed;
  return static_cast<int>(
      std::max<std::int64_t>(0, std::min({static_cast<std::int64_t>(max_depth), budget - 1, room})));
}

RoundWidth resolve_width(std::optional<int> requested, int default_width, int width_cap) {
  if (requested && *requested < 2) {
    fail_expected(ErrorCode::kInvalidArgument, "MTP block size", "an integer of at least 2",
                  fmt::format("{}", *requested));
  }
  return {std::min(requested.value_or(default_width), width_cap), requested};
}

}  // namespace mererun
