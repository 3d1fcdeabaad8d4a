#include "decode/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace mererun {
namespace {

DepthChoice depth(int d) { return {d, DepthReason::kPolicy}; }

void expect_balance(const Statistics& statistics) {
  EXPECT_EQ(statistics.generated(), statistics.rounds() + statistics.serial_rounds() + statistics.accepted());
}

TEST(Statistics, CountAFullRound) {
  Statistics statistics(7);
  statistics.record_first_token();
  statistics.record_round({depth(4), 2, 3});
  EXPECT_EQ(statistics.generated(), 4);
  EXPECT_EQ(statistics.rounds(), 1);
  EXPECT_EQ(statistics.drafted(), 4);
  EXPECT_EQ(statistics.accepted(), 2);
  EXPECT_DOUBLE_EQ(*statistics.acceptance_rate(), 0.5);
  statistics.finish();
  EXPECT_EQ(statistics.serial_rounds(), 1) << "the last token needed no evaluation";
  expect_balance(statistics);
}

TEST(Statistics, LeaveOutWhatStandsBehindACut) {
  // Three drafts were accepted, the end of sequence came after the first: one token was output.
  Statistics statistics(7);
  statistics.record_first_token();
  statistics.record_round({depth(5), 3, 1});
  statistics.finish();
  EXPECT_EQ(statistics.generated(), 2);
  EXPECT_EQ(statistics.accepted(), 1);
  EXPECT_EQ(statistics.accepted_counts()[1], 1);
  EXPECT_EQ(statistics.serial_rounds(), 0);
  expect_balance(statistics);
}

TEST(Statistics, HaveNoRateWithoutDrafts) {
  Statistics statistics(3);
  statistics.record_first_token();
  statistics.record_round({depth(0), 0, 1});
  statistics.record_round({depth(0), 0, 0});  // an end of sequence
  statistics.finish();
  EXPECT_EQ(statistics.acceptance_rate(), std::nullopt);
  EXPECT_EQ(statistics.generated(), 2);
  EXPECT_EQ(statistics.serial_rounds(), 2);
  EXPECT_EQ(statistics.rounds(), 0);
  expect_balance(statistics);
}

TEST(Statistics, CountProbes) {
  Statistics statistics(3);
  statistics.record_first_token();
  statistics.record_round({{1, DepthReason::kProbe}, 0, 1});
  statistics.record_round({{0, DepthReason::kBudget}, 0, 1});
  EXPECT_EQ(statistics.probes(), 1);
}

TEST(Statistics, BalanceForAnyCourseOfARequest) {
  std::mt19937 random(11);
  for (int request = 0; request < 500; ++request) {
    Statistics statistics(7);
    statistics.record_first_token();
    std::int64_t output = 1;
    std::int64_t rounds = 0;
    for (bool finished = false; !finished;) {
      const int d = static_cast<int>(random() % 8);
      const int accepted = static_cast<int>(random() % static_cast<unsigned>(d + 1));
      const bool cut = random() % 10 == 0;
      const int emitted =
          cut ? static_cast<int>(random() % static_cast<unsigned>(accepted + 1)) : accepted + 1;
      statistics.record_round({depth(d), accepted, emitted});
      output += emitted;
      ++rounds;
      finished = cut || random() % 20 == 0;
    }
    statistics.finish();
    EXPECT_EQ(statistics.generated(), output);
    expect_balance(statistics);
    const auto sum = [](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    EXPECT_EQ(sum(statistics.depth_counts()), rounds);
    EXPECT_EQ(sum(statistics.accepted_counts()), statistics.rounds());
    std::int64_t accepted = 0;
    for (std::size_t a = 0; a < statistics.accepted_counts().size(); ++a) {
      accepted += static_cast<std::int64_t>(a) * statistics.accepted_counts()[a];
    }
    EXPECT_EQ(accepted, statistics.accepted());
    EXPECT_LE(statistics.accepted(), statistics.drafted());
  }
}

}  // namespace
}  // namespace mererun
