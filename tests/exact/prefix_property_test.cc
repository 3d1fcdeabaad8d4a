// Random trees of conversations under a tiny budget: every answer's tokens and logits, and the states it
// leaves behind, are the cold run's.

#include <gtest/gtest.h>

#include "tests/engine/tiny_engine.h"
#include "tests/exact/prefix_walk.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

constexpr std::size_t kBudget = std::size_t{3} << 20;  // some twenty snapshots

class PrefixProperty : public ::testing::TestWithParam<std::string> {};

TEST_P(PrefixProperty, AnswersAreColdAnswers) {
  const testing::TempFolder temp;
  const auto folder = testing::tiny_checkpoint_folder(temp, 4096, GetParam() == "moe");
  const testing::PrefixWalkResult r = testing::run_prefix_walk(
      folder, {.steps = 1200, .seed = GetParam() == "dense" ? 11u : 12u, .budget_bytes = kBudget});
  EXPECT_EQ(r.steps, 1200);
  for (const std::string& difference : r.differences) ADD_FAILURE() << difference;
  EXPECT_GT(r.hits, 300);
  EXPECT_GT(r.exact_hits, 50);
  EXPECT_GT(r.evictions, 200);
  EXPECT_GT(r.edits, 5);
  EXPECT_GT(r.boundaries, 5);
  EXPECT_GE(r.switches, 300);
  EXPECT_GT(r.compared_states, 300);
  EXPECT_GT(r.compared_histories, 100);
  std::printf("%s: %d steps, %d cold runs, %lld hits (%lld exact), %lld tokens reused, %lld evictions\n",
              GetParam().c_str(), r.steps, r.cold_runs, static_cast<long long>(r.hits),
              static_cast<long long>(r.exact_hits), static_cast<long long>(r.reused_tokens),
              static_cast<long long>(r.evictions));
}

INSTANTIATE_TEST_SUITE_P(Tiny, PrefixProperty, ::testing::Values("dense", "moe"),
                         [](const auto& p) { return std::string(p.param == "dense" ? "Dense" : "Moe"); });

}  // namespace
}  // namespace mererun
