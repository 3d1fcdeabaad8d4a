// A part of the speculation soak (scripts/soak.sh runs it whole). The part changes with the day, so that a
// suite that runs often covers all of it.

#include <gtest/gtest.h>

#include <ctime>

#include "engine/run.h"
#include "tests/soak/prompts.h"
#include "tests/soak/speculation_soak.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

std::unique_ptr<Engine> load(const std::string& model, StreamHistory history = StreamHistory::kOn) {
  return Engine::load({.model = {.model = "", .root = testing::bundled(model).string()},
                       .process = {.speculation = Speculation::kOn, .stream_history = history}});
}

class SpeculationSubset : public ::testing::TestWithParam<std::string> {};

TEST_P(SpeculationSubset, DraftedOutputIsTheSerialOutput) {
  const auto engine = load(GetParam());
  constexpr int kParts = 30;
  const auto day = static_cast<int>(std::time(nullptr) / 86400);
  const int turn =
      day / kParts % 4;  // after each turn of the parts other widths, so that every part meets all
  testing::SoakPlan plan{
      .first = day % kParts, .stride = kParts, .tokens = 256, .widths = {2 + turn, 6 + turn}};
  const testing::SoakResult result = testing::run_speculation_soak(*engine, plan);
  EXPECT_EQ(result.prompts, 2) << "part " << plan.first << " of " << kParts;
  EXPECT_GT(result.drafted, 0);
  for (const std::string& difference : result.differences) ADD_FAILURE() << difference;
}

/// Counts are the same on every machine: the depth is the block's, and bits decide what is accepted.
TEST_P(SpeculationSubset, TheHistoryOfThePromptRaisesAcceptance) {
  const auto primed = load(GetParam());
  const auto unprimed = load(GetParam(), StreamHistory::kNone);
  std::int64_t accepted[2] = {0, 0}, drafted[2] = {0, 0};
  const std::vector<testing::SoakPrompt> prompts = testing::soak_prompts(15);
  for (const testing::SoakPrompt& prompt : prompts) {
    std::vector<TokenId> outputs[2];
    for (const int arm : {0, 1}) {
      GenerateRequest request;
      request.chat = prompt.chat;
      request.max_tokens = 48;
      request.ignores_eos = true;
      request.uses_prefix_cache = false;
      request.full_depth = true;
      request.width = 4;
      GenerateResult result = generate(arm == 0 ? *primed : *unprimed, std::move(request));
      const int transitions = static_cast<int>(result.prompt_ids.size()) - 1;
      EXPECT_EQ(result.acceleration.draft_history_tokens, arm == 0 ? transitions : 0) << prompt.kind;
      accepted[arm] += result.acceleration.statistics.accepted();
      drafted[arm] += result.acceleration.statistics.drafted();
      outputs[arm] = std::move(result.ids);
    }
    EXPECT_EQ(outputs[0], outputs[1]) << prompt.kind;
  }
  const auto rate = [&](int arm) {
    return static_cast<double>(accepted[arm]) / static_cast<double>(drafted[arm]);
  };
  EXPECT_GT(rate(0), rate(1) + 0.01) << accepted[0] << "/" << drafted[0] << " primed, " << accepted[1] << "/"
                                     << drafted[1] << " unprimed";
  RecordProperty("primed", std::to_string(rate(0)));
  RecordProperty("unprimed", std::to_string(rate(1)));
}

INSTANTIATE_TEST_SUITE_P(Bundled, SpeculationSubset, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& p) {
                           return std::string(p.param == "demo-dense-4bit" ? "Dense" : "Moe");
                         });

}  // namespace
}  // namespace mererun
