// Random trees of conversations across restarts from disk: every answer's tokens and logits, and the states
// it leaves behind, are the cold run's.

#include <gtest/gtest.h>

#include "tests/engine/tiny_engine.h"
#include "tests/exact/prefix_walk.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

constexpr std::size_t kBudget = std::size_t{3} << 20;  // some twenty snapshots

class DiskPrefixProperty : public ::testing::TestWithParam<std::string> {};

TEST_P(DiskPrefixProperty, AnswersAreColdAnswersAcrossRestarts) {
  const testing::TempFolder temp;
  const auto folder = testing::tiny_checkpoint_folder(temp, 4096, GetParam() == "moe");
  const testing::PrefixWalkResult r = testing::run_prefix_walk(
      folder, {.steps = 200, .seed = 21, .budget_bytes = kBudget, .disk_folder = temp / "cache"});
  EXPECT_EQ(r.steps, 200);
  EXPECT_EQ(r.restarts, 4);
  for (const std::string& difference : r.differences) ADD_FAILURE() << difference;
  EXPECT_GT(r.disk_hits, 20);
  EXPECT_GT(r.compared_states, 50);
}

/// Prompts of up to some hundred ids cross the dense and sparse border, blocks and pages.
TEST(FlashPrefixProperty, AnswersAreColdAnswersAcrossRestarts) {
  const testing::TempFolder temp;
  const auto folder = testing::with_tokenizer(temp, testing::golden_dir() / "tiny-flash" / "mlx");
  const testing::PrefixWalkResult r = testing::run_prefix_walk(
      folder, {.steps = 120, .seed = 31, .conversations = 12, .disk_folder = temp / "cache"});
  EXPECT_EQ(r.steps, 120);
  for (const std::string& difference : r.differences) ADD_FAILURE() << difference;
  EXPECT_GT(r.hits, 30);
  EXPECT_GT(r.disk_hits, 5);
  EXPECT_GT(r.compared_states, 30);
}

INSTANTIATE_TEST_SUITE_P(Tiny, DiskPrefixProperty, ::testing::Values("dense", "moe"),
                         [](const auto& p) { return std::string(p.param == "dense" ? "Dense" : "Moe"); });

}  // namespace
}  // namespace mererun
