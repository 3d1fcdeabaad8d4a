#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/types.h"
#include "decode/round_times.h"

namespace mererun {

/// Draft cost as a fixed share of a verification: the rule of the modelled system. The ratio is a tuning
/// value, not a measured fact.
struct FixedCost {
  static constexpr double kDefaultRatio = 0.18;
  double ratio = kDefaultRatio;  // finite, 0 < ratio <= 5
};

/// What the next drafting round has to catch up with, and for how long it can pay.
struct DraftOutlook {
  int waiting = 0;             // transitions that wait in the draft history
  std::int64_t remaining = 0;  // tokens the request may still emit
};

/// Every round drafts as deep as its cap allows (the `fixed` variant of benchmarks).
struct FullDepth {};

/// Round times are shared with other requests.
using CostModel = std::variant<std::shared_ptr<RoundTimes>, FixedCost, FullDepth>;

/// "measured", "fixed" or "full", as reports name the model.
std::string_view name_of(const CostModel& cost);

/// Value of MERERUN_Q35_MTP_HEAD_COST_RATIO; none unless it is a finite number in (0, 5].
std::optional<double> parse_cost_ratio(std::string_view text);

enum class DepthReason {
  kPolicy,  // the cost model's choice
  kProbe,   // one draft after a run of depth-0 rounds, to see whether drafting pays again
  kBudget,  // nothing may be drafted: no room, or no token left to emit
};

struct DepthChoice {
  int depth = 0;
  DepthReason reason = DepthReason::kPolicy;
  int limit = 0;  // as deep as drafts of which the drafter is sure may go on; 0: no deeper than `depth`
};

struct DepthPolicyOptions {
  int max_depth = 0;  // D = W - 1, the most a round may draft
  CostModel cost = FixedCost{};
  bool probes = true;  // false leaves depth 0 permanent
};

/// Decides how many tokens the next round drafts, from how often each draft position was right so far. One a
/// request. It changes only how much is drafted, never a token.
///
/// p[i] estimates the chance that draft i is right given that those before it were; E_d = sum of p[0]...p[i]
/// for i < d is the expected number of accepted drafts at depth d.
///
/// Thread-safety: thread-compatible.
class DepthPolicy {
 public:
  /// Errors: kInvalidArgument for a negative depth, a ratio out of range, or round times of fewer than D
  /// drafts.
  explicit DepthPolicy(DepthPolicyOptions options);

  /// Depth of the next round, at most `cap`. Does not change the state. With measured costs, transitions that
  /// wait from undrafted rounds or from the end of the prompt are a debt: drafting, and a probe too, must be
  /// able to earn it back in what remains of the request.
  DepthChoice choose(int cap, DraftOutlook outlook = {}) const;

  /// Whether a round that has `drafted` drafts gains by one more, where all of them are right with
  /// probability `reach`, by the drafter's own account. Always true where no times are measured.
  bool goes_on(int drafted, double reach) const;

  /// Learns from a round that was chosen so and had its first `accepted` drafts accepted.
  void update(DepthChoice choice, int accepted);

  /// Corrects the measured times by a round of `depth` drafts that took `seconds`. Another cost model ignores
  /// it. From then on a serial round is made now and then to keep the comparison true.
  void observe(int depth, double seconds);

  int max_depth() const { return options_.max_depth; }
  const CostModel& cost() const { return options_.cost; }
  const std::vector<double>& estimates() const { return p_; }

 private:
  /// The depth that gives most tokens a unit of time, and how many.
  struct Best {
    int depth = 0;
    double rate = 0;
  };
  RoundTimes* times() const;  // null unless costs are measured
  Best best_of(const RoundTimes& times, int cap) const;
  /// The cost model's choice.
  DepthChoice planned(int cap, DraftOutlook outlook) const;
  DepthChoice depth_for(const FixedCost& cost, int cap, DraftOutlook) const;
  DepthChoice depth_for(const std::shared_ptr<RoundTimes>& times, int cap, DraftOutlook outlook) const;
  DepthChoice depth_for(const FullDepth&, int cap, DraftOutlook) const { return {.depth = cap}; }
  bool earns(const RoundTimes& times, double token_time, DraftOutlook outlook) const;
  bool may_probe(int cap, DraftOutlook outlook) const;
  double yield(const RoundTimes& times) const;
  double rate_of(const RoundTimes& times, const Best& best) const;
  bool may_go_on_probing() const;

  DepthPolicyOptions options_;
  std::vector<double> p_;  // [D]
  // What drafting rounds yielded of late, older ones counting ever less: tokens, and rounds by depth. Rounds
  // that end where the drafter is unsure yield more than the estimates promise.
  double tokens_;
  std::vector<double> rounds_;  // [D + 1]
  int rounds_at_zero_ = 0;      // depth-0 rounds since the last drafting one
  int probe_gap_;               // as many of them make the next round a probe
};

/// Most drafts of a round: min(D, budget - 1, context - 1 - committed), at least 0. The round's own target
/// choice supplies one token, so a draft that could not be emitted is never made.
///
/// budget     tokens the request may still emit
/// context    limit C on positions
/// committed  positions held by the target's layers (n)
int draft_cap(int max_depth, std::int64_t budget, Position context, Position committed);

/// Width W of a round: the option, or the model's default, at most the model's cap.
struct RoundWidth {
  int width = 0;
  std::optional<int> requested = std::nullopt;  // as asked for, also where it was clamped
};

/// Errors: kInvalidArgument for a request below 2.
RoundWidth resolve_width(std::optional<int> requested, int default_width, int width_cap);

}  // namespace mererun
