#include "engine/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

/// A request that wants 40 positions of prompt, so that chunks of 16 make three steps of prefill.
GenerateRequest long_request() {
  GenerateRequest request;
  request.ids = std::vector<TokenId>(40, 100);
  request.max_tokens = 8;
  request.sampling.temperature = 0;
  request.ignores_eos = true;
  return request;
}

std::unique_ptr<Engine> small_chunks() {
  return Engine::load(
      {.model = {.model = "", .root = testing::bundled("demo-dense-4bit").string()}, .prefill_chunk = 16});
}

TEST(RunCancel, BeforeDuringAndAfterPrefill) {
  const auto engine = small_chunks();
  for (const int steps : {0, 1, 2, 4, 6}) {
    class Run run(*engine, long_request());  // the test fixture has a Run of its own
    for (int i = 0; i < steps; ++i) run.step();
    ASSERT_FALSE(run.is_finished()) << steps;
    EXPECT_EQ(run.prompt_done() < 40, steps < 4) << steps;
    run.cancel();
    run.step();
    ASSERT_TRUE(run.is_finished()) << steps;
    const GenerateResult result = run.take_result();
    EXPECT_EQ(result.finish, FinishReason::kCancelled) << steps;
    EXPECT_EQ(result.ids.empty(), steps < 4) << steps;
  }
}

TEST(EngineLoad, WarnsWhereDraftsWereAskedForAndThereIsNoHead) {
  const testing::TempFolder temp;
  testing::TinySpec spec = testing::tiny_dense();
  spec.head = testing::TinyHead::kNone;
  const auto folder = testing::write_tiny_checkpoint(temp / "headless", spec);
  testing::add_tokenizer(folder);
  EngineOptions options = testing::engine_options_for(folder, 0);
  ASSERT_EQ(options.process.speculation, Speculation::kOn);
  const auto warnings = [&] { return Engine::load(options)->resolved().warnings; };
  EXPECT_THAT(warnings(), ::testing::ElementsAre(::testing::HasSubstr("no complete draft head is loaded")));
  options.process.speculation = Speculation::kAuto;
  EXPECT_THAT(warnings(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace mererun
