#include "engine/benchmark_verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/synthetic_model.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;

const std::atomic<bool> kNotCancelled{false};
constexpr int kTokens = 40;  // no multiple of most widths: the last slice is shorter

class Verification : public ::testing::TestWithParam<const char*> {
 protected:
  Verification()
      : model_(testing::load_model(testing::golden_dir() / GetParam() / "mlx", "cpu")),
        benchmark_(*model_, testing::random_ids(21, model_->config().vocabulary, 3), kNotCancelled) {}

  std::unique_ptr<Model> model_;
  VerificationBenchmark benchmark_;
};

TEST_P(Verification, EveryWidthReproducesTheSerialRows) {
  const VerificationOracle oracle = benchmark_.greedy_oracle(kTokens);
  ASSERT_EQ(oracle.inputs.size(), static_cast<std::size_t>(kTokens));
  EXPECT_EQ(oracle.inputs[0], oracle.first_choice);
  for (std::size_t i = 0; i + 1 < oracle.inputs.size(); ++i)
    EXPECT_EQ(oracle.inputs[i + 1], oracle.choices[i]) << i;
  for (const int width : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
    const VerificationRow row = benchmark_.verify(oracle, width, 1);
    EXPECT_TRUE(row.greedy_parity) << width;
    EXPECT_TRUE(row.logits_parity) << width;
    EXPECT_FALSE(row.first_mismatch);
    EXPECT_EQ(row.verified_tokens, kTokens);
    EXPECT_EQ(row.passes, (kTokens + width - 1) / width);
    EXPECT_TRUE(row.rate());
    EXPECT_GT(row.cache_memory_bytes, 0U);
    EXPECT_GT(row.active_memory_bytes, row.cache_memory_bytes);
  }
}

TEST_P(Verification, GivenRowsNeedNotBeTheModelsChoice) {
  const std::vector<TokenId> rows = testing::random_ids(kTokens, model_->config().vocabulary, 9);
  const VerificationOracle oracle = benchmark_.forced_oracle(rows);
  EXPECT_EQ(oracle.inputs, rows);
  EXPECT_TRUE(benchmark_.verify(oracle, 8, 1).passes_parity());
  EXPECT_EQ(oracle.experts.empty(), !model_->config().is_moe());
  if (model_->config().is_moe()) {
    EXPECT_DOUBLE_EQ(distinct_experts_per_slice(oracle, 1), model_->config().experts_per_token);
    EXPECT_GT(distinct_experts_per_slice(oracle, 8), model_->config().experts_per_token);
  }
}

TEST_P(Verification, AnotherBitAnywhereIsFoundAndVoidsTheRate) {
  const VerificationOracle truth = benchmark_.greedy_oracle(kTokens);
  VerificationOracle other_logits = truth;
  other_logits.hashes[17] = truth.hashes[16];
  const VerificationRow logits = benchmark_.verify(other_logits, 4, 1);
  EXPECT_TRUE(logits.greedy_parity);
  EXPECT_FALSE(logits.logits_parity);
  ASSERT_TRUE(logits.first_mismatch);
  EXPECT_EQ(logits.first_mismatch->row, 17);
  EXPECT_EQ(logits.first_mismatch->expected, logits.first_mismatch->got);
  EXPECT_FALSE(logits.rate());

  VerificationOracle other_choice = truth;
  other_choice.choices[5] = truth.choices[5] + 1;
  const VerificationRow choice = benchmark_.verify(other_choice, 4, 1);
  EXPECT_FALSE(choice.greedy_parity);
  EXPECT_TRUE(choice.logits_parity);
  ASSERT_TRUE(choice.first_mismatch);
  EXPECT_EQ(choice.first_mismatch->row, 5);
  EXPECT_EQ(choice.first_mismatch->got, truth.choices[5]);

  VerificationOracle other_start = truth;  // the state that was restored is not the oracle's
  ++other_start.first_choice;
  EXPECT_FALSE(benchmark_.verify(other_start, 4, 1).greedy_parity);
}

TEST_P(Verification, EvenTrialsRunTheWidthsBackwards) {
  const VerificationOracle oracle = benchmark_.greedy_oracle(32);
  std::vector<std::string> order;
  const auto rows =
      benchmark_.run(oracle, {.widths = {1, 4, 10}, .tokens = 32, .trials = 3, .certified_width = 9},
                     [&](const VerificationRow& row) {
                       order.push_back(std::to_string(row.trial) + ":" + std::to_string(row.width));
                     });
  EXPECT_THAT(order, ElementsAre("1:1", "1:4", "1:10", "2:10", "2:4", "2:1", "3:1", "3:4", "3:10"));
  for (const VerificationRow& row : rows) EXPECT_EQ(row.certified, row.width <= 9);
}

TEST_P(Verification, EndsWhenCancelled) {
  const std::atomic<bool> cancelled{true};
  const std::vector<TokenId> prompt = {1, 2, 3};
  EXPECT_THROW(VerificationBenchmark(*model_, prompt, cancelled), Error);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Verification, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"),
                         [](const auto& instance) {
                           const std::string name = instance.param;
                           return name == "tiny-moe" ? "Moe" : name == "tiny-dense" ? "Dense" : "Flash";
                         });

VerificationRow measured(int width, double seconds, bool parity = true) {
  VerificationRow row{.width = width, .trial = 1};
  row.verified_tokens = 100;
  row.seconds = seconds;
  row.greedy_parity = row.logits_parity = parity;
  return row;
}

TEST(VerificationSummary, MediansAndRatios) {
  const auto summary =
      summarise({measured(8, 1), measured(1, 4), measured(1, 10), measured(8, 2), measured(1, 5)});
  ASSERT_EQ(summary.size(), 2U);
  EXPECT_EQ(summary[0].width, 1);
  EXPECT_DOUBLE_EQ(*summary[0].median_rate, 20.0);
  EXPECT_DOUBLE_EQ(*summary[0].ratio_to_one, 1.0);
  EXPECT_DOUBLE_EQ(*summary[1].median_rate, 75.0);
  EXPECT_DOUBLE_EQ(*summary[1].ratio_to_one, 3.75);
}

TEST(VerificationSummary, AFailedTrialVoidsItsWidth) {
  const auto summary = summarise({measured(4, 1), measured(4, 1, false), measured(4, 1), measured(8, 1)});
  EXPECT_FALSE(summary[0].median_rate);
  EXPECT_TRUE(summary[1].median_rate);
  EXPECT_FALSE(summary[1].ratio_to_one);  // nothing was measured at width 1
}

TEST(DistinctExperts, CountsABlocksUnionInEveryLayer) {
  VerificationOracle oracle;
  oracle.experts = {{{0, 1}, {1, 2}, {5, 6}}, {{0, 1}, {0, 1}, {0, 1}}};
  EXPECT_DOUBLE_EQ(distinct_experts_per_slice(oracle, 1), 2.0);
  EXPECT_DOUBLE_EQ(distinct_experts_per_slice(oracle, 2), (3 + 2 + 2 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(distinct_experts_per_slice(oracle, 3), (5 + 2) / 2.0);
  EXPECT_DOUBLE_EQ(distinct_experts_per_slice({}, 3), 0.0);
}

}  // namespace
}  // namespace mererun
