#include "decode/depth_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

using Depths = std::vector<int>;

DepthPolicy fixed_policy(int max_depth, double ratio = FixedCost::kDefaultRatio, bool probes = false) {
  return DepthPolicy({.max_depth = max_depth, .cost = FixedCost{ratio}, .probes = probes});
}

CostModel measured(const MeasuredCost& cost) { return std::make_shared<RoundTimes>(cost); }

/// Depths of `rounds` rounds of which round i accepts at most accepts(i) drafts.
Depths trajectory(DepthPolicy policy, int rounds, const std::function<int(int)>& accepts) {
  Depths depths;
  for (int i = 0; i < rounds; ++i) {
    const DepthChoice choice = policy.choose(policy.max_depth());
    depths.push_back(choice.depth);
    policy.update(choice, std::min(choice.depth, accepts(i)));
  }
  return depths;
}

std::function<int(int)> at_most(int accepted) {
  return [accepted](int) { return accepted; };
}

TEST(DepthPolicy, FollowsReferenceTrajectories) {
  EXPECT_EQ(trajectory(fixed_policy(3), 14, at_most(0)), (Depths{3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 0, 0, 0, 0}));
  EXPECT_EQ(trajectory(fixed_policy(7), 14, at_most(0)), (Depths{4, 4, 4, 4, 3, 3, 3, 2, 2, 1, 0, 0, 0, 0}));
  EXPECT_EQ(trajectory(fixed_policy(3), 50, at_most(3)), Depths(50, 3));
  Depths rising = {4, 5, 5, 6, 6, 6, 7, 7};
  rising.resize(50, 7);
  EXPECT_EQ(trajectory(fixed_policy(7), 50, at_most(7)), rising);
  EXPECT_EQ(trajectory(fixed_policy(3), 19, at_most(1)),
            (Depths{3, 3, 3, 3, 3, 2, 1, 3, 2, 1, 3, 2, 1, 2, 2, 1, 2, 2, 1}));
  EXPECT_EQ(trajectory(fixed_policy(7), 16, at_most(2)),
            (Depths{4, 4, 4, 3, 2, 3, 3, 2, 3, 2, 3, 2, 3, 3, 2, 3}));
  EXPECT_EQ(trajectory(fixed_policy(7), 16, [](int i) { return i % 2 == 0 ? 0 : 7; }),
            (Depths{4, 4, 5, 4, 5, 5, 5, 5, 5, 5, 6, 5, 6, 6, 6, 6}));
}

TEST(DepthPolicy, FreshDepthFollowsTheCostRatio) {
  const std::vector<std::pair<double, int>> expected = {{0.05, 7}, {0.1, 6}, {0.18, 4},
                                                        {0.3, 3},  {0.5, 2}, {1, 0}};
  for (const auto& [ratio, depth] : expected)
    EXPECT_EQ(fixed_policy(7, ratio).choose(7).depth, depth) << ratio;
}

TEST(DepthPolicy, DepthZeroIsPermanentWithoutProbes) {
  const Depths depths = trajectory(fixed_policy(3), 2000, at_most(0));
  EXPECT_EQ(std::count_if(depths.begin() + 10, depths.end(), [](int depth) { return depth > 0; }), 0);
}

TEST(DepthPolicy, ProbesOnTheReferenceSchedule) {
  const Depths depths = trajectory(fixed_policy(3, FixedCost::kDefaultRatio, true), 1000, at_most(0));
  Depths drafting;
  for (int i = 0; i < 1000; ++i) {
    if (depths[static_cast<std::size_t>(i)] > 0) drafting.push_back(i);
  }
  EXPECT_EQ(drafting, (Depths{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 26, 59, 124, 253, 510, 767}));
  for (std::size_t i = 10; i < drafting.size(); ++i)
    EXPECT_EQ(depths[static_cast<std::size_t>(drafting[i])], 1);
}

TEST(DepthPolicy, OneAcceptedProbeResumesDrafting) {
  // Rejected for a long time (p[0] reaches its floor), then always right.
  DepthPolicy policy = fixed_policy(3, FixedCost::kDefaultRatio, true);
  int probes = 0;
  for (int i = 0; i < 6000; ++i) {
    const DepthChoice choice = policy.choose(3);
    probes += choice.reason == DepthReason::kProbe ? 1 : 0;
    policy.update(choice, 0);
  }
  EXPECT_DOUBLE_EQ(policy.estimates()[0], 0.05);
  DepthChoice choice = policy.choose(3);
  while (choice.reason != DepthReason::kProbe) {
    policy.update(choice, 0);
    choice = policy.choose(3);
  }
  policy.update(choice, 1);
  EXPECT_GT(policy.choose(3).depth, 0);
  EXPECT_EQ(policy.choose(3).reason, DepthReason::kPolicy);
  for (int i = 0; i < 40; ++i) {
    const DepthChoice next = policy.choose(3);
    policy.update(next, next.depth);
  }
  EXPECT_EQ(policy.choose(3).depth, 3);
  EXPECT_GT(probes, 10);
}

TEST(DepthPolicy, ProbeGapReturnsToSixteenAfterAnAcceptedProbe) {
  DepthPolicy policy = fixed_policy(1, FixedCost::kDefaultRatio, true);
  int probes = 0;
  int zero_rounds = 0;
  std::vector<int> gaps;
  // The third probe is accepted, everything else refused.
  for (int i = 0; i < 400; ++i) {
    const DepthChoice choice = policy.choose(1);
    if (choice.reason == DepthReason::kProbe) {
      gaps.push_back(zero_rounds);
      ++probes;
    }
    zero_rounds = choice.depth == 0 ? zero_rounds + 1 : 0;
    policy.update(choice, choice.reason == DepthReason::kProbe && probes == 3 ? 1 : 0);
  }
  ASSERT_GE(gaps.size(), 5u);
  EXPECT_EQ((std::vector<int>(gaps.begin(), gaps.begin() + 5)), (std::vector<int>{16, 32, 64, 16, 32}));
}

TEST(DepthPolicy, RoundsWithoutRoomNeitherCountNorProbe) {
  DepthPolicy policy = fixed_policy(3, FixedCost::kDefaultRatio, true);
  for (int i = 0; i < 10; ++i) policy.update(policy.choose(3), 0);
  for (int i = 0; i < 100; ++i) {
    const DepthChoice choice = policy.choose(0);
    EXPECT_EQ(choice.depth, 0);
    EXPECT_EQ(choice.reason, DepthReason::kBudget);
    policy.update(choice, 0);
  }
  for (int i = 0; i < 16; ++i) {
    const DepthChoice choice = policy.choose(3);
    EXPECT_EQ(choice.depth, 0) << i;
    policy.update(choice, 0);
  }
  EXPECT_EQ(policy.choose(3).reason, DepthReason::kProbe);
  EXPECT_EQ(policy.choose(0).reason, DepthReason::kBudget);
}

TEST(DepthPolicy, ArgmaxEqualsStopRule) {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    const int max_depth = 1 + static_cast<int>(random() % 15);
    const double ratio = std::uniform_real_distribution<double>(0.01, 1.2)(random);
    const std::vector<double> flat(static_cast<std::size_t>(max_depth) + 1, 1.0);
    DepthPolicy fixed = fixed_policy(max_depth, ratio);
    DepthPolicy timed({.max_depth = max_depth, .cost = measured({flat, 0, ratio}), .probes = false});
    for (int round = 0; round < 20; ++round) {
      const int cap = static_cast<int>(random() % static_cast<unsigned>(max_depth + 1));
      const DepthChoice choice = fixed.choose(cap);
      ASSERT_EQ(choice.depth, timed.choose(cap).depth) << "ratio " << ratio << " round " << round;
      const int accepted = static_cast<int>(random() % static_cast<unsigned>(choice.depth + 1));
      fixed.update(choice, accepted);
      timed.update(choice, accepted);
    }
  }
}

TEST(DepthPolicy, MeasuredCostMaximisesTokensPerTime) {
  // p = 0.85, 0.833, 0.816: E = 0.85, 1.558, 2.136.
  const auto depth = [](std::vector<double> verify, double flush, double step, int cap = 3) {
    return DepthPolicy(
               {.max_depth = 3, .cost = measured({std::move(verify), flush, step, 0}), .probes = false})
        .choose(cap)
        .depth;
  };
  EXPECT_EQ(depth({1, 1, 1, 1}, 0, 0), 3);
  EXPECT_EQ(depth({1, 2, 3, 4}, 0, 0), 0) << "a wider pass that saves nothing";
  EXPECT_EQ(depth({1, 1.2, 1.4, 3.2}, 0, 0.05), 2) << "a cliff at width 4";
  EXPECT_EQ(depth({1, 1, 1, 1}, 0.9, 0), 3) << "the flush is paid once, whatever the depth";
  EXPECT_EQ(depth({1, 1, 1, 1}, 2.2, 0), 0) << "3.136 / 3.2 is below 1";
  EXPECT_EQ(depth({1, 1.9, 1.95, 2.0}, 0, 0), 3) << "depth 1 alone would not pay";
  EXPECT_EQ(depth({1, 1.9, 1.95, 2.0}, 0, 0, 1), 0);
  EXPECT_EQ(depth({1, 1.85, 9, 9}, 0, 0), 0) << "of equal rates the smallest depth";
}

TEST(DepthPolicy, OptimismStopsAtItsCeilingAndNeverLowersAnEstimate) {
  DepthPolicy policy = fixed_policy(2);
  for (int i = 0; i < 100; ++i) policy.update(policy.choose(1), 1);
  EXPECT_NEAR(policy.estimates()[1], 0.95, 1e-6);
  EXPECT_LE(policy.estimates()[1], 0.95);
  for (int i = 0; i < 100; ++i) policy.update(policy.choose(2), 2);
  const double proven = policy.estimates()[1];
  EXPECT_GT(proven, 0.99);
  policy.update(policy.choose(1), 1);
  EXPECT_EQ(policy.estimates()[1], proven);
}

TEST(DepthPolicy, FullDepthAlwaysDraftsTheCap) {
  DepthPolicy policy({.max_depth = 7, .cost = FullDepth{}});
  for (int i = 0; i < 100; ++i) {
    const DepthChoice choice = policy.choose(i % 9);
    EXPECT_EQ(choice.depth, std::min(7, i % 9));
    policy.update(choice, 0);
  }
}

TEST(DepthPolicy, UselessDrafterStaysWithinFivePercentOfSerial) {
  struct Machine {
    double verify_step, flush, draft_step;
  };
  for (const Machine& machine : {Machine{0, 0, 0.18}, Machine{0, 0.1, 0.1}, Machine{0.05, 0.05, 0.1},
                                 Machine{0.2, 0, 0.1}, Machine{0.4, 0.1, 0.15}, Machine{1, 0, 0.3}}) {
    for (const int max_depth : {3, 7}) {
      MeasuredCost cost;
      for (int width = 1; width <= max_depth + 1; ++width) {
        cost.verify.push_back(1 + machine.verify_step * (width - 1));
      }
      cost.flush = machine.flush;
      cost.draft_step = machine.draft_step;
      DepthPolicy policy({.max_depth = max_depth, .cost = measured(cost)});
      double time = 0;
      constexpr int kTokens = 512;
      for (int i = 0; i < kTokens; ++i) {
        const DepthChoice choice = policy.choose(max_depth);
        time += cost.verify[static_cast<std::size_t>(choice.depth)] + (choice.depth > 0 ? cost.flush : 0) +
                choice.depth * cost.draft_step;
        policy.update(choice, 0);
      }
      EXPECT_LT(time, 1.05 * kTokens) << machine.verify_step << " D " << max_depth;
    }
  }
}

TEST(DepthPolicy, WaitingTransitionsAreADebtThatDraftingMustEarn) {
  // A draft saves 0.45 a token at best; a waiting transition costs 0.2, those of one round (4) are no debt.
  const MeasuredCost cost{.verify = {1, 1.1, 1.2, 1.3}, .flush = 0, .draft_step = 0.3, .waiting_row = 0.2};
  const DepthPolicy policy({.max_depth = 3, .cost = measured(cost)});
  EXPECT_GT(policy.choose(3).depth, 0) << "nothing known of what waits";
  EXPECT_GT(policy.choose(3, {.waiting = 4, .remaining = 1}).depth, 0);
  EXPECT_EQ(policy.choose(3, {.waiting = 104, .remaining = 20}).depth, 0) << "20 to pay, at most 9 to earn";
  EXPECT_GT(policy.choose(3, {.waiting = 104, .remaining = 2000}).depth, 0);
  EXPECT_GT(
      DepthPolicy({.max_depth = 3, .cost = FixedCost{}}).choose(3, {.waiting = 250, .remaining = 2}).depth, 0)
      << "the fixed rule knows no debt";
}

TEST(DepthPolicy, NoProbeThatCannotEarnItsDebt) {
  const MeasuredCost cost{.verify = {1, 1.1, 1.2, 1.3}, .flush = 0, .draft_step = 0.3, .waiting_row = 0.2};
  DepthPolicy policy({.max_depth = 3, .cost = measured(cost)});
  for (int i = 0; i < 400; ++i) {
    const DepthChoice choice = policy.choose(3, {.waiting = 200 + i, .remaining = 40});
    ASSERT_EQ(choice.depth, 0) << i;
    policy.update(choice, 0);
  }
  EXPECT_EQ(policy.choose(3, {.waiting = 20, .remaining = 4000}).depth, 3)
      << "the estimates are as they were";
}

TEST(DepthPolicy, RightDraftsThatDoNotPayAreProbedEverMoreRarely) {
  // Accepted one time in two: p[0] stays high, and yet a round with drafts is never worth its time.
  const MeasuredCost cost{
      .verify = {1, 1.75, 2.5, 3.2}, .flush = 0.1, .draft_step = 0.05, .waiting_row = 0.1};
  DepthPolicy policy({.max_depth = 3, .cost = measured(cost)});
  for (int i = 0; i < 60; ++i) policy.update({1, DepthReason::kPolicy}, i % 2);
  ASSERT_EQ(policy.choose(3).depth, 0);
  double time = 0;
  int tokens = 0, probes = 0;
  while (tokens < 1000) {
    const DepthChoice choice = policy.choose(3, {.waiting = 1, .remaining = 1000 - tokens});
    const bool probes_now = choice.reason == DepthReason::kProbe;
    probes += probes_now ? 1 : 0;
    const int accepted = choice.depth > 0 && probes % 2 == 1 ? 1 : 0;
    time += cost.verify[static_cast<std::size_t>(choice.depth)] + choice.depth * cost.draft_step +
            (choice.depth > 0 ? cost.flush : 0);
    tokens += 1 + accepted;
    policy.update(choice, accepted);
  }
  EXPECT_LE(probes, 14) << "a right one is followed by another";
  EXPECT_LT(time, 1.05 * 1000);
}

TEST(DepthPolicy, RightProbesGoOnUntilDraftingPays) {
  DepthPolicy policy({.max_depth = 3, .cost = measured({{1, 1.6, 2.2, 2.8}, 0, 0, 0})});
  while (policy.choose(3).depth > 0) policy.update(policy.choose(3), 0);
  int drafted = 0;
  for (int i = 0; i < 30; ++i) {
    const DepthChoice choice = policy.choose(3);
    drafted += choice.depth > 0 ? 1 : 0;
    policy.update(choice, choice.depth);
  }
  EXPECT_EQ(drafted, 30 - 16) << "from the first probe on every round drafts";
  EXPECT_EQ(policy.choose(3).depth, 3);
}

TEST(DepthPolicy, ARoundGoesOnWhileItsDraftsAreSure) {
  // A row and a draft cost 0.6 of a serial step: worth it only while nearly all drafts are right.
  DepthPolicy policy({.max_depth = 7, .cost = measured({{1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5}, 0.1, 0.1, 0})});
  const DepthChoice choice = policy.choose(7);
  ASSERT_GT(choice.depth, 0);
  EXPECT_GE(choice.limit, choice.depth);
  EXPECT_TRUE(policy.goes_on(1, 1.0));
  EXPECT_FALSE(policy.goes_on(1, 0.5));
  EXPECT_FALSE(policy.goes_on(7, 1.0)) << "the block is full";
  for (int i = 0; i < 60; ++i) policy.update({.depth = 7}, 7);
  EXPECT_EQ(policy.choose(7).limit, 7) << "drafts that were right before";
  EXPECT_EQ(policy.choose(4).limit, 4);
  EXPECT_TRUE(fixed_policy(3).goes_on(1, 0.0)) << "the fixed rule does not ask";
}

TEST(DepthPolicy, RejectsImpossibleCosts) {
  const auto code_of = [](DepthPolicyOptions options) {
    try {
      DepthPolicy policy(std::move(options));
    } catch (const Error& error) {
      return std::string(name_of(error.code()));
    }
    return std::string();
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(code_of({.max_depth = -1}), "invalid_argument");
  for (const double ratio : {0.0, -0.1, 5.01, nan}) {
    EXPECT_EQ(code_of({.max_depth = 3, .cost = FixedCost{ratio}}), "invalid_argument");
  }
  EXPECT_EQ(code_of({.max_depth = 3, .cost = measured({{1, 1, 1}, 0, 0})}), "invalid_argument");
  EXPECT_EQ(code_of({.max_depth = 1, .cost = measured({{1, 1}, 0, 0})}), "");
  EXPECT_EQ(code_of({.max_depth = 0}), "");
}

TEST(CostRatio, ParsesFiniteNumbersUpToFive) {
  EXPECT_EQ(parse_cost_ratio("0.18"), 0.18);
  EXPECT_EQ(parse_cost_ratio("5"), 5.0);
  EXPECT_EQ(parse_cost_ratio("1e-3"), 0.001);
  for (const char* text : {"", "0", "-1", "5.0001", "nan", "inf", "x", "0.2x", "0,2", " 0.2"}) {
    EXPECT_EQ(parse_cost_ratio(text), std::nullopt) << text;
  }
}

TEST(DraftCap, IsBoundByDepthBudgetAndContext) {
  EXPECT_EQ(draft_cap(7, 100, 1000, 10), 7);
  EXPECT_EQ(draft_cap(7, 3, 1000, 10), 2);  // two drafts and the target's own choice
  EXPECT_EQ(draft_cap(7, 1, 1000, 10), 0);
  EXPECT_EQ(draft_cap(7, 0, 1000, 10), 0);
  EXPECT_EQ(draft_cap(7, 100, 16, 10), 5);  // rows at positions 10..15
  EXPECT_EQ(draft_cap(7, 100, 16, 15), 0);
  EXPECT_EQ(draft_cap(7, 100, 16, 16), 0);
  EXPECT_EQ(draft_cap(7, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<Position>::max(), 0),
            7);
  EXPECT_EQ(draft_cap(0, 100, 1000, 10), 0);
}

TEST(RoundWidth, IsClampedToTheCapAndRemembersTheRequest) {
  EXPECT_EQ(resolve_width(std::nullopt, 8, 9).width, 8);
  EXPECT_EQ(resolve_width(std::nullopt, 8, 9).requested, std::nullopt);
  for (const auto& [requested, width] : std::vector<std::pair<int, int>>{{2, 2}, {9, 9}, {10, 9}, {32, 9}}) {
    EXPECT_EQ(resolve_width(requested, 8, 9).width, width);
    EXPECT_EQ(resolve_width(requested, 8, 9).requested, requested);
  }
  EXPECT_EQ(resolve_width(17, 4, 16).width, 16);
  for (const int bad : {1, 0, -4}) EXPECT_THROW(resolve_width(bad, 4, 16), Error);
}

}  // namespace
}  // namespace mererun
