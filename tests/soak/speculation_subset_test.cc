// A part of the speculation soak (scripts/soak.sh runs it whole). The part changes with the day, so that a
// suite that runs often covers all of it.

#include <gtest/gtest.h>

#include <ctime>

#include "tests/soak/speculation_soak.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

class SpeculationSubset : public ::testing::TestWithParam<std::string> {};

TEST_P(SpeculationSubset, DraftedOutputIsTheSerialOutput) {
  const auto engine = Engine::load({.model = {.model = "", .root = testing::bundled(GetParam()).string()},
                                    .process = {.speculation = Speculation::kOn}});
  constexpr int kParts = 30;
  const auto day = static_cast<int>(std::time(nullptr) / 86400);
  testing::SoakPlan plan{
      .first = day % kParts, .stride = kParts, .tokens = 256, .widths = {2 + day % 4, 6 + day % 4}};
  const testing::SoakResult result = testing::run_speculation_soak(*engine, plan);
  EXPECT_EQ(result.prompts, 2) << "part " << plan.first << " of " << kParts;
  EXPECT_GT(result.drafted, 0);
  for (const std::string& difference : result.differences) ADD_FAILURE() << difference;
}

INSTANTIATE_TEST_SUITE_P(Bundled, SpeculationSubset, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& p) {
                           return std::string(p.param == "demo-dense-4bit" ? "Dense" : "Moe");
                         });

}  // namespace
}  // namespace mererun
