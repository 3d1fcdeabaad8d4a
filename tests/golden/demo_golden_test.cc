// The bundled checkpoints against an independent fp32 implementation (tests/golden/README.md): next-token
// logits, greedy continuations of 12 prompts decoded with drafts, and how often the drafts were right.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "decode/mtp_drafter.h"
#include "tests/golden/golden_file.h"
#include "tests/support/generation.h"

namespace mererun {
namespace {

using nlohmann::json;
using testing::IdSink;
using testing::StartedGeneration;

constexpr int kTokens = 256;
constexpr double kSafeMargin = 5e-3;          // below it the top two logits are a near-tie
constexpr double kLogitBound = 2e-4;          // relative, of the 16 largest logits
constexpr std::size_t kLongestPrimed = 1000;  // tokens; the long prompts take most of the time
constexpr double kAcceptanceBound = 0.02;     // per depth and domain

json load(const std::string& id) {
  std::ifstream file(testing::golden_dir() / (id + ".json"));
  return json::parse(file);
}

struct DepthCounts {
  int rounds = 0;
  std::array<int, 3> at_depth{};  // rounds that accepted at least 1, 2, 3 drafts
};

class DemoGolden : public ::testing::TestWithParam<std::string> {
 protected:
  DemoGolden()
      : golden_(load(GetParam())), model_(testing::load_model(testing::bundled(GetParam()), "cpu")) {}

  json golden_;
  std::unique_ptr<Model> model_;
};

TEST_P(DemoGolden, NextLogits) {
  int compared = 0;
  for (const json& prompt : golden_["prompts"]) {
    if (!prompt.contains("next_logits")) continue;
    const auto ids = prompt["prompt_ids"].get<std::vector<TokenId>>();
    SequenceState state = model_->new_sequence();
    Prefill(*model_, state, ids, {}).run();
    const auto row = testing::to_host(model_->ops(), model_->decoder().logits(state.last_hidden()));
    std::vector<float> got;
    for (const auto& id : prompt["next_logits"]["ids"]) got.push_back(row[id.get<std::size_t>()]);
    const auto want = prompt["next_logits"]["values"].get<std::vector<float>>();
    EXPECT_LT(testing::relative_error(got, want), kLogitBound) << prompt["prompt"];
    ++compared;
  }
  EXPECT_GE(compared, 9);
}

TEST_P(DemoGolden, GreedyTextAndDraftAcceptance) {
  MtpDrafter drafter(*model_);
  std::map<std::string, DepthCounts> measured;
  for (const json& prompt : golden_["prompts"]) {
    const auto ids = prompt["prompt_ids"].get<std::vector<TokenId>>();
    const auto want = prompt["greedy_ids"].get<std::vector<TokenId>>();
    const auto margins = prompt["margins"].get<std::vector<double>>();
    const auto rounds = prompt["rounds"].get<std::vector<int>>();

    IdSink sink;
    // Eight tokens of room, so that the budget shortens no round that is compared.
    StartedGeneration started(
        *model_,
        {.prompt = ids, .max_tokens = kTokens + 8, .width = 4, .drafter = &drafter, .context_limit = 8192},
        sink);
    Generation& generation = started.generation;
    DepthCounts& counts = measured[prompt["domain"]];
    for (std::size_t r = 0; r < rounds.size(); ++r) {
      const auto before = generation.tokens().size();
      generation.round();
      const int accepted = static_cast<int>(generation.tokens().size() - before) - 1;
      ++counts.rounds;
      for (int d = 0; d < accepted; ++d) ++counts.at_depth[static_cast<std::size_t>(d)];
    }
    while (static_cast<int>(generation.tokens().size()) < kTokens) generation.round();

    for (std::size_t i = 0; i < want.size(); ++i) {
      if (generation.tokens()[i] == want[i]) continue;
      EXPECT_LT(margins[i], kSafeMargin)
          << prompt["domain"] << " prompt of " << ids.size() << " tokens, step " << i;
      std::printf("%s: %s prompt of %zu tokens differs first at step %zu, margin %.2g\n", GetParam().c_str(),
                  prompt["domain"].get<std::string>().c_str(), ids.size(), i, margins[i]);
      break;
    }
  }
  for (const auto& [domain, counts] : measured) {
    const json& want = golden_["acceptance_by_domain"][domain];
    for (std::size_t d = 0; d < 3; ++d) {
      const double got = static_cast<double>(counts.at_depth[d]) / counts.rounds;
      EXPECT_NEAR(got, want["acceptance"][d].get<double>(), kAcceptanceBound) << domain << " depth " << d + 1;
    }
    std::printf("%s %s: accepted at least 1/2/3 in %d/%d/%d of %d rounds\n", GetParam().c_str(),
                domain.c_str(), counts.at_depth[0], counts.at_depth[1], counts.at_depth[2], counts.rounds);
  }
}

TEST_P(DemoGolden, RetrievalPromptsAreAnsweredWithTheirCodes) {
  int found = 0;
  for (const json& prompt : golden_["prompts"]) {
    if (prompt["domain"] != "retrieval") continue;
    const auto ids = prompt["prompt_ids"].get<std::vector<TokenId>>();
    const auto answer = prompt["greedy_ids_until_eos"].get<std::vector<TokenId>>();
    testing::GenerationSetup setup{
        .prompt = ids, .max_tokens = static_cast<int>(answer.size()), .context_limit = 8192};
    IdSink sink;
    EXPECT_EQ(testing::run_generation(*model_, setup, sink).ids, answer) << ids.size() << " tokens";
    ++found;
  }
  EXPECT_EQ(found, 2);
}

TEST_P(DemoGolden, PrimingRaisesAcceptanceAndChangesNoText) {
  MtpDrafter drafter(*model_);
  std::map<HistoryMode, int> drafted, accepted;
  for (const json& prompt : golden_["prompts"]) {
    const auto ids = prompt["prompt_ids"].get<std::vector<TokenId>>();
    if (ids.size() > kLongestPrimed) continue;
    std::map<HistoryMode, std::vector<TokenId>> texts;
    for (const HistoryMode mode : {HistoryMode::kNone, HistoryMode::kStreaming}) {
      IdSink sink;
      const auto outcome = testing::run_generation(
          *model_, {.prompt = ids, .max_tokens = 64, .width = 4, .drafter = &drafter, .history = mode}, sink);
      texts[mode] = outcome.ids;
      drafted[mode] += static_cast<int>(outcome.statistics.drafted());
      accepted[mode] += static_cast<int>(outcome.statistics.accepted());
    }
    EXPECT_EQ(texts[HistoryMode::kNone], texts[HistoryMode::kStreaming]);
  }
  const auto rate = [&](HistoryMode mode) { return static_cast<double>(accepted[mode]) / drafted[mode]; };
  EXPECT_GT(rate(HistoryMode::kStreaming), rate(HistoryMode::kNone));
  std::printf("%s: accepted %.3f of the drafts with the prompt's history, %.3f without\n", GetParam().c_str(),
              rate(HistoryMode::kStreaming), rate(HistoryMode::kNone));
}

INSTANTIATE_TEST_SUITE_P(Bundled, DemoGolden, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& p) {
                           return std::string(p.param == "demo-dense-4bit" ? "Dense" : "Moe");
                         });

}  // namespace
}  // namespace mererun
