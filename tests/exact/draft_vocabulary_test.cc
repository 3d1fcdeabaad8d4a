// Compact draft vocabulary and shortlist: proposals follow their own written rule, and never change the text.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "decode/draft_history_pass.h"
#include "decode/mtp_drafter.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/generation.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using namespace testing;  // NOLINT: the test support's names

constexpr int kHidden = 128;
const std::vector<TokenRange> kRanges{{0, 69}, {200, 255}};  // 126 rows, padded to 128

/// Deterministic coarse matrix, not related to the exact one: the shortlist visibly matters.
std::vector<float> coarse_values(int rows) {
  std::vector<float> values(static_cast<std::size_t>(rows) * kHidden);
  std::uint64_t x = 5;
  for (float& v : values) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    v = static_cast<float>(static_cast<int>(x >> 40 & 0xffff) - 32768) * 1e-5f;
  }
  return values;
}

std::filesystem::path write_model(const TempFolder& temp, const std::string& name, bool shortlist) {
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  if (shortlist) {
    for (StoredTensor& part : quantise_affine("draft_lm_head", {128}, kHidden, coarse_values(128), 2, 64))
      files.weights["mtp/model.safetensors"].push_back(std::move(part));
  }
  files.write(temp / name);
  return temp / name;
}

std::unique_ptr<Model> load_ranged(const std::filesystem::path& folder, bool ranged,
                                   const std::string& backend) {
  LoadOptions options;
  if (ranged) options.draft_vocabulary = kRanges;
  return Model::load(folder, options, make_ops(backend), {});
}

std::vector<TokenId> generate_ids(Model& model, const std::vector<TokenId>& prompt) {
  MtpDrafter drafter(model);
  GenerationSetup setup{.prompt = prompt, .max_tokens = 80, .width = 6, .drafter = &drafter};
  IdSink sink;
  return run_generation(model, setup, sink).ids;
}

TEST(DraftVocabularyRule, CompactHeadAndShortlistChangeNoText) {
  const TempFolder temp;
  const auto plain = write_model(temp, "plain", false);
  const auto listed = write_model(temp, "listed", true);
  for (const char* backend : {"reference", "cpu"}) {
    const auto full = load_ranged(plain, false, backend);
    const auto prompt = random_ids(30, 256, 3);
    const std::vector<TokenId> expected = run_oracle(*full, prompt, 80).ids;
    EXPECT_EQ(generate_ids(*full, prompt), expected);
    EXPECT_EQ(generate_ids(*load_ranged(plain, true, backend), prompt), expected) << "compact, " << backend;
    EXPECT_EQ(generate_ids(*load_ranged(listed, true, backend), prompt), expected)
        << "shortlist, " << backend;
  }
}

TEST(DraftVocabularyRule, TheShortlistRescoresTheThirtyTwoBestCoarseRows) {
  const TempFolder temp;
  const auto model = load_ranged(write_model(temp, "listed", true), true, "cpu");
  MtpDrafter drafter(*model);
  int differs_from_exact = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto prompt = random_ids(20, 256, seed);
    SequenceState state = model->new_sequence();
    Prefill(*model, state, prompt, {}).run();
    const TokenId pending = static_cast<TokenId>(seed * 5 % 256);
    state.history()->append(state.last_hidden(), {&pending, 1});
    SequenceState twin = state.fork();
    std::vector<TokenId> drafts;
    Sampler sampler({}, prompt);
    drafter.draft({state, pending, 1, sampler, nullptr}, drafts);
    ASSERT_EQ(drafts.size(), 1u);

    MtpHead& head = *model->head();
    const TensorView out = evaluate_waiting(head, *twin.history(), model->limits().max_rows);
    const auto coarse = to_host(model->ops(), head.coarse_scores(head.output_input(out)));
    const auto exact = to_host(model->ops(), head.draft_logits(out));
    const int rows = head.output().rows;
    std::vector<int> order(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return coarse[static_cast<std::size_t>(a)] > coarse[static_cast<std::size_t>(b)];
    });
    order.resize(32);
    std::sort(order.begin(), order.end());
    const auto better = [&](int a, int b) {
      return exact[static_cast<std::size_t>(a)] < exact[static_cast<std::size_t>(b)];
    };
    const int want = *std::max_element(order.begin(), order.end(), better);
    EXPECT_EQ(drafts[0], head.output().vocabulary->compact_id_to_token(want)) << "seed " << seed;
    const auto best = std::max_element(exact.begin(), exact.begin() + rows) - exact.begin();
    if (best != want) ++differs_from_exact;
  }
  EXPECT_GT(differs_from_exact, 0) << "a coarse matrix of noise must sometimes miss the best row";
}

constexpr unsigned kGivenDepth = 3;

/// Drafts of a round behind `prompt` whose further drafts cost `step` of a serial round.
std::size_t drafts_at_cost(Model& model, const std::vector<TokenId>& prompt, double step) {
  MeasuredCost cost{.verify = {1}};
  for (int i = 0; i < 5; ++i) cost.verify.push_back(cost.verify.back() + step);
  const DepthPolicy policy({.max_depth = 5, .cost = std::make_shared<RoundTimes>(cost)});
  SequenceState state = model.new_sequence();
  Prefill(model, state, prompt, {}).run();
  state.history()->append(state.last_hidden(), {prompt.data(), 1});
  Sampler sampler({}, prompt);
  std::vector<TokenId> drafts;
  MtpDrafter drafter(model);
  DraftRequest request{state, prompt.front(), 1, sampler, nullptr};
  request.policy = &policy;
  request.depth = static_cast<int>(kGivenDepth);
  request.limit = 5;
  drafter.draft(request, drafts);
  return drafts.size();
}

TEST(SureDrafts, ARoundGoesOnWhileAnotherDraftPays) {
  // Weights of noise: the drafter is never sure.
  const TempFolder temp;
  for (const bool shortlist : {false, true}) {
    const auto model =
        load_ranged(write_model(temp, shortlist ? "listed" : "plain", shortlist), shortlist, "cpu");
    const auto prompt = random_ids(20, 256, 1);
    // Scores that stay on a device say nothing: a round keeps the depth it was given.
    const bool tells = shortlist || model->ops().is_host();
    EXPECT_EQ(drafts_at_cost(*model, prompt, 1e-9), tells ? 5u : kGivenDepth) << "drafts that cost nothing";
    EXPECT_EQ(drafts_at_cost(*model, prompt, 0.9), tells ? 1u : kGivenDepth);
  }
}

}  // namespace
}  // namespace mererun
