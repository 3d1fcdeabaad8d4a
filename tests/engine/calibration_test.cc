// Measuring what drafts cost decides how many are made; it must leave no trace in a state or a text.
#include "engine/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using ::testing::Each;
using ::testing::Gt;

class Calibration : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Engine> load(int max_positions) {
    EngineOptions options =
        testing::engine_options_for(testing::tiny_checkpoint_folder(temp_, max_positions, GetParam()), 0);
    options.cost.measured = true;
    return Engine::load(options);
  }
  static GenerateResult ask(Engine& engine, const std::vector<TokenId>& prompt, int tokens, bool serial) {
    GenerateRequest request;
    request.ids = prompt;
    request.max_tokens = tokens;
    request.ignores_eos = true;
    request.serial_route = serial;
    return generate(engine, std::move(request));
  }

  testing::TempFolder temp_;
};

TEST_P(Calibration, GivesATimeForEveryWidth) {
  const auto engine = load(4096);
  const MeasuredCost cost = measure_cost(engine->model(), engine->verify_log(9), 9).cost;
  EXPECT_EQ(cost.verify.size(), 9u);
  EXPECT_THAT(cost.verify, Each(Gt(0)));
  EXPECT_GE(cost.flush, 0);
  EXPECT_GT(cost.draft_step, 0);
}

TEST_P(Calibration, BehindLongTextsLeavesTheTextsTheSame) {
  const auto engine = load(16384);
  for (const int length : {700, 1023, 1024, 1500, 2600, 2600}) {
    const auto prompt = testing::random_ids(length, 256, 5);
    const GenerateResult drafted = ask(*engine, prompt, 40, false);
    EXPECT_EQ(drafted.ids, ask(*engine, prompt, 40, true).ids) << length;
    EXPECT_EQ(drafted.acceleration.cost_model, "measured");
  }
}

TEST_P(Calibration, NeedsNoRoomThatTheContextLacks) {
  const auto engine = load(1100);
  const auto prompt = testing::random_ids(1097, 256, 6);
  EXPECT_EQ(ask(*engine, prompt, 3, false).ids, ask(*engine, prompt, 3, true).ids);
}

INSTANTIATE_TEST_SUITE_P(Models, Calibration, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Moe" : "Dense"; });

}  // namespace
}  // namespace mererun
