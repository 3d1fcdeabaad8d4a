// What rounds take, learned from rounds. Time is simulated: nothing here depends on this machine's.
#include "decode/round_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "decode/depth_policy.h"

namespace mererun {
namespace {

CostModel measured(const MeasuredCost& cost) { return std::make_shared<RoundTimes>(cost); }

TEST(RoundTimes, ObservedRoundsCorrectAWrongMeasurement) {
  // Measured up to ten times too cheap, no width saves anything: drafting must end, right as drafts are.
  const auto true_time = [](int depth) { return depth == 0 ? 1.0 : 1.2 * (1 + depth); };
  DepthPolicy policy({.max_depth = 7, .cost = measured({std::vector<double>(8, 1.0), 0, 0.01, 0})});
  const auto time_of = [&](int tokens) {
    double time = 0;
    while (tokens > 0) {
      const DepthChoice choice = policy.choose(7);
      time += true_time(choice.depth);
      tokens -= 1 + choice.depth;
      policy.update(choice, choice.depth);
      policy.observe(choice.depth, true_time(choice.depth));
    }
    return time;
  };
  EXPECT_LT(time_of(600), 1.25 * 600) << "what learning may cost";
  EXPECT_EQ(policy.choose(7).depth, 0);
  EXPECT_LT(time_of(600), 1.02 * 600) << "and once learnt";
}

TEST(RoundTimes, NoiseDoesNotMakeDraftingPay) {
  // Measured as it is; every round's time scatters by a third, and half of the drafts are right.
  const std::vector<double> true_time = {1, 1.9, 2.7, 3.45};
  std::mt19937 random(7);
  std::lognormal_distribution<double> noise(0, 0.35);
  double time = 0;
  int tokens = 0;
  for (int request = 0; request < 40; ++request) {
    DepthPolicy policy({.max_depth = 3, .cost = measured({true_time, 0, 0, 0})});
    for (int n = 0; n < 256;) {
      const DepthChoice choice = policy.choose(3);
      int accepted = 0;
      while (accepted < choice.depth && random() % 2 == 0) ++accepted;
      const double expected = true_time[static_cast<std::size_t>(choice.depth)];
      policy.update(choice, accepted);
      policy.observe(choice.depth, expected * noise(random));
      time += expected;
      n += 1 + accepted;
      tokens += 1 + accepted;
    }
  }
  EXPECT_LT(time, 1.03 * tokens);
}

/// A machine whose rounds scatter, that is measured badly and now and then slows down to half.
class ShakyMachine {
 public:
  ShakyMachine(double row, double draft, unsigned seed) : random_(seed) {
    for (int depth = 0; depth <= 7; ++depth)
      rounds_.push_back(1 + row * depth + (depth > 0 ? 0.1 : 0.0) + draft * depth);
  }
  CostModel measure() {
    std::uniform_real_distribution<double> error(0.7, 1.3);
    MeasuredCost cost;
    for (const double time : rounds_) cost.verify.push_back(time * error(random_));
    return measured(cost);
  }
  double round(int depth) {
    if (random_() % 40 == 0) slow_ = !slow_;
    return undisturbed(depth) * (slow_ ? 2 : 1) * scatter_(random_);
  }
  int accepted(int depth, double chance) {
    int n = 0;
    while (n < depth && std::uniform_real_distribution<double>(0, 1)(random_) < chance) ++n;
    return n;
  }
  double undisturbed(int depth) const { return rounds_[static_cast<std::size_t>(depth)]; }
  /// Time a token at the best fixed depth, undisturbed.
  double best_token_time(double chance) const {
    double best = undisturbed(0), tokens = 1, reach = 1;
    for (int depth = 1; depth <= 7; ++depth) {
      tokens += reach *= chance;
      best = std::min(best, undisturbed(depth) / tokens);
    }
    return best;
  }

 private:
  std::mt19937 random_;
  std::vector<double> rounds_;  // [D + 1]
  bool slow_ = false;
  std::lognormal_distribution<double> scatter_{0, 0.25};
};

/// Time a token of `processes` processes of eight requests each; each draft is right by `chance`.
double adaptive_token_time(double row, double chance, unsigned processes) {
  double time = 0;
  int tokens = 0;
  for (unsigned seed = 1; seed <= processes; ++seed) {
    ShakyMachine machine(row, 0.2, seed);
    const CostModel cost = machine.measure();
    for (int request = 0; request < 8; ++request) {
      DepthPolicy policy({.max_depth = 7, .cost = cost});
      for (int n = 0; n < 256;) {
        const DepthChoice choice = policy.choose(7);
        const int accepted = machine.accepted(choice.depth, chance);
        policy.update(choice, accepted);
        policy.observe(choice.depth, machine.round(choice.depth));
        time += machine.undisturbed(choice.depth);
        n += 1 + accepted;
        tokens += 1 + accepted;
      }
    }
  }
  return time / tokens;
}

TEST(RoundTimes, OnAShakyMachineLittleIsLostToTheBestFixedDepth) {
  double worst = 0, sum = 0;
  for (const double row : {0.1, 0.3, 0.5, 0.8}) {
    for (const double chance : {0.3, 0.6, 0.85, 0.97}) {
      const double best = ShakyMachine(row, 0.2, 0).best_token_time(chance);
      const double loss = adaptive_token_time(row, chance, 12) / best;
      worst = std::max(worst, loss);
      sum += loss;
    }
  }
  EXPECT_LT(worst, 1.10);
  EXPECT_LT(sum / 16, 1.05);
}

TEST(RoundTimes, SlowSerialRoundsBringDraftingBack) {
  // Measured dear; serial rounds turn out three times as slow, as behind a long text.
  DepthPolicy policy({.max_depth = 3, .cost = measured({{1, 4, 5, 6}, 0, 0, 0})});
  ASSERT_EQ(policy.choose(3).depth, 0);
  for (int i = 0; i < 60; ++i) {
    const DepthChoice choice = policy.choose(3);
    policy.update(choice, choice.depth);
    policy.observe(choice.depth, choice.depth == 0 ? 3 : 3 + choice.depth);
  }
  EXPECT_EQ(policy.choose(3).depth, 3);
}

TEST(RoundTimes, OneLostCoreDecidesNothing) {
  DepthPolicy policy({.max_depth = 3, .cost = measured({{1, 1.1, 1.2, 1.3}, 0, 0.1, 0})});
  policy.observe(3, 1000);
  EXPECT_GE(policy.choose(3).depth, 2);
}

TEST(RoundTimes, SerialRoundsKeepTheComparisonTrue) {
  DepthPolicy policy({.max_depth = 3, .cost = measured({{1, 1.1, 1.2, 1.3}, 0, 0.1, 0})});
  std::vector<int> serial;
  for (int i = 0; i < 200; ++i) {
    const DepthChoice choice = policy.choose(3);
    if (choice.depth == 0) serial.push_back(i);
    policy.update(choice, choice.depth);
    policy.observe(choice.depth, 1 + 0.2 * choice.depth);
  }
  EXPECT_EQ(serial, (std::vector<int>{6, 19, 44, 93, 142, 191}));
}

TEST(RoundTimes, WhatOneRequestLearntServesTheNext) {
  const CostModel shared = measured({{1, 1, 1, 1}, 0, 0.01, 0});
  for (int request = 0; request < 2; ++request) {
    DepthPolicy policy({.max_depth = 3, .cost = shared});
    EXPECT_EQ(policy.choose(3).depth, request == 0 ? 3 : 0);
    for (int i = 0; i < 150; ++i) {
      const DepthChoice choice = policy.choose(3);
      policy.update(choice, choice.depth);
      policy.observe(choice.depth, choice.depth == 0 ? 1 : 1.2 * (1 + choice.depth));
    }
  }
}

TEST(RoundTimes, MostOfASlowDownIsThePace) {
  // The machine slows down to half while only one depth is used: no other looks better for it.
  RoundTimes times({.verify = {1, 1.5, 2, 2.5}});
  const double before = times.of(3) / times.of(0);
  for (int i = 0; i < 20; ++i) times.observe(i % 2 == 0 ? 0 : 3, i % 2 == 0 ? 1 : 2.5);
  for (int i = 0; i < 4; ++i) times.observe(3, 2 * 2.5);
  EXPECT_GT(times.of(0), 1.3);
  for (int i = 0; i < 4; ++i) times.observe(3, 2.5);
  EXPECT_NEAR(times.of(3) / times.of(0), before, 0.15 * before);
}

/// Rounds that a request of 200 tokens takes, behind a prompt whose last 100 transitions wait. Every draft is
/// right, or none is.
int rounds_of_request(const CostModel& shared, const std::vector<double>& true_time, bool is_right) {
  DepthPolicy policy({.max_depth = 3, .cost = shared});
  int rounds = 0, waiting = 100;
  for (int left = 200; left > 0; ++rounds) {
    const DepthChoice choice = policy.choose(3, {.waiting = waiting, .remaining = left});
    const int accepted = is_right ? choice.depth : 0;
    policy.update(choice, accepted);
    if (choice.depth == 0 || waiting <= 4)
      policy.observe(choice.depth, true_time[static_cast<std::size_t>(choice.depth)]);
    waiting = choice.depth == 0 ? waiting + 1 : 1 + accepted;
    left -= 1 + accepted;
  }
  return rounds;
}

TEST(RoundTimes, ADisturbedMeasurementDoesNotEndDraftingForGood) {
  for (const double disturbed : {2.5, 5.0, 12.0}) {
    const CostModel shared = measured({{1, disturbed, disturbed + 1, disturbed + 2}, 0, 0.1, 0.05});
    EXPECT_EQ(rounds_of_request(shared, {1, 1.2, 1.4, 1.6}, true), 200) << "no draft can pay by these times";
    for (int request = 0; request < 20; ++request) rounds_of_request(shared, {1, 1.2, 1.4, 1.6}, true);
    EXPECT_LT(rounds_of_request(shared, {1, 1.2, 1.4, 1.6}, true), 110) << disturbed;
  }
}

TEST(RoundTimes, DraftsThatAreTrulyDearAreTriedRarely) {
  const std::vector<double> true_time = {1, 3, 4, 5};
  for (const bool is_right : {false, true}) {
    const CostModel shared = measured({true_time, 0, 0, 0.05});
    int rounds = 0;
    for (int request = 0; request < 40; ++request) rounds += rounds_of_request(shared, true_time, is_right);
    EXPECT_GE(rounds, 40 * 200 - 20) << "a draft that is right saves a round";
    const auto& times = *std::get<std::shared_ptr<RoundTimes>>(shared);
    EXPECT_NEAR(times.of(1) / times.of(0), 3, 0.1);
  }
}

TEST(RoundTimes, AnUnexpectedSerialRoundIsFollowedByAnother) {
  RoundTimes times({.verify = {1, 1.5, 2, 2.5}});
  EXPECT_FALSE(times.wants_serial()) << "nothing observed yet";
  for (int i = 0; i < 6; ++i) times.observe(3, 2.5);
  ASSERT_TRUE(times.wants_serial());
  times.observe(0, 3);
  EXPECT_TRUE(times.wants_serial());
  for (int i = 0; i < 10; ++i) times.observe(0, 3);
  EXPECT_FALSE(times.wants_serial());
  EXPECT_GT(times.of(0), 2);
}

TEST(RoundTimes, RejectsImpossibleCosts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const MeasuredCost& cost :
       {MeasuredCost{}, MeasuredCost{.verify = {0, 1}}, MeasuredCost{.verify = {1, nan}},
        MeasuredCost{.verify = {1, 1}, .flush = -1}, MeasuredCost{.verify = {1, 1}, .draft_step = nan}}) {
    EXPECT_THROW(RoundTimes{cost}, Error);
  }
}

}  // namespace
}  // namespace mererun
