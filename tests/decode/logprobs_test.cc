#include "decode/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

TEST(Logprobs, AreTheRawLogSoftmax) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> row(9000);
  for (float& value : row) value = normal(random);
  row[12] = -std::numeric_limits<float>::infinity();
  long double mass = 0;
  for (const float value : row) mass += std::exp(static_cast<long double>(value));
  const RowLogprobs got = row_logprobs(row, 4321, 20);
  EXPECT_EQ(got.chosen.id, 4321);
  EXPECT_NEAR(got.chosen.logprob, static_cast<double>(row[4321] - std::log(mass)), 1e-12);
  ASSERT_EQ(got.top.size(), 20u);
  for (std::size_t i = 0; i < got.top.size(); ++i) {
    const auto logit = static_cast<long double>(row[static_cast<std::size_t>(got.top[i].id)]);
    EXPECT_NEAR(got.top[i].logprob, static_cast<double>(logit - std::log(mass)), 1e-12);
    if (i > 0) {
      EXPECT_LE(got.top[i].logprob, got.top[i - 1].logprob);
    }
  }
  EXPECT_EQ(row_logprobs(row, 12, 0).chosen.logprob, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(row_logprobs(row, 12, 0).top.empty());
  EXPECT_EQ(row_logprobs(row, 12, 1).top.size(), 1u);
}

TEST(LogprobsDeathTest, AreOfATokenOfTheRow) {
  const std::vector<float> row = {1, 2, 3};
  EXPECT_EQ(row_logprobs(row, 0, 0).chosen.id, 0);
  EXPECT_DEATH(row_logprobs(row, 3, 0), "in the row");
  EXPECT_DEATH(row_logprobs(row, -1, 0), "in the row");
}

TEST(Logprobs, ListTiesByAscendingId) {
  const std::vector<float> row = {1, 2, 2, 0, 2};
  const std::vector<TokenLogprob> top = top_logprobs(row, 4);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 2);
  EXPECT_EQ(top[2].id, 4);
  EXPECT_EQ(top[3].id, 0);
}

TEST(Logprobs, RefuseRowsThatAreNoNumbers) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    try {
      top_logprobs(std::vector<float>{0, bad, 1}, 2);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNumeric);
    }
  }
}

}  // namespace
}  // namespace mererun
