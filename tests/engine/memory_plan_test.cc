// The formulas of docs/memory.md against what a loaded model really allocates.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/model.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using namespace mererun::testing;

HostWeights described(const std::filesystem::path& folder) {
  LoadOptions options;
  options.experts = LoadOptions::Experts::kDescribe;
  return load_host_weights(folder, options);
}

/// Bytes of the mapping that a loaded model reads in every pass: the embedding, and BF16 rows that no
/// rebuilding copied.
void expect_plan_holds(const std::filesystem::path& folder) {
  const HostWeights host = described(folder);
  const auto model = load_model(folder, "cpu:1", {.max_rows = 64, .max_logit_rows = 4});
  const WeightMemory weights = weight_memory(host);
  EXPECT_EQ(weights.owned, model->weights().owned_bytes);
  EXPECT_EQ(host.report.copied_bytes, model->host().report.copied_bytes);

  constexpr int kContext = 700;
  const MemoryNeed need =
      memory_needed(host, kContext, {.prefill_chunk = 64, .logit_rows = 4, .verify_width = 5});
  model->rope().ensure(kContext);
  const std::size_t rope = static_cast<std::size_t>(model->rope().positions()) *
                           static_cast<std::size_t>(host.config.rope.rotary_dims) * sizeof(float);
  EXPECT_EQ(need.arena,
            model->activations().size_bytes() + VerifyLog::size_bytes(model->geometry(), 5) + rope);

  SequenceState state = model->new_sequence();
  EXPECT_EQ(need.state, state.recurrent().bytes().size_bytes() +
                            4 * static_cast<std::size_t>(host.config.residual_dim()));
  state.kv().reserve(kContext);
  if (state.history()) state.history()->cache().reserve(kContext);
  const auto live_bytes = [](const std::shared_ptr<KvPagePool>& pool) {
    return pool == nullptr ? 0 : pool->live_pages() * pool->geometry().page_bytes();
  };
  const std::size_t kv = live_bytes(model->pools().trunk) + live_bytes(model->pools().head);
  EXPECT_EQ(need.kv, kv);
  EXPECT_EQ(need.total(), need.weights + need.arena + need.state + need.kv);
}

TEST(MemoryPlan, HoldsForTheBundledModels) {
  expect_plan_holds(bundled("demo-dense-4bit"));
  expect_plan_holds(bundled("demo-moe-4bit"));
  expect_plan_holds(golden_dir() / "tiny-flash" / "mlx");
}

TEST(MemoryPlan, HoldsForTiedUnquantisedAndHeadlessModels) {
  TempFolder folder;
  TinySpec tied = tiny_dense();
  tied.tied = true;
  tied.modules["layers.0.mlp.down_proj"] = {.bits = 0};
  expect_plan_holds(write_tiny_checkpoint(folder / "tied", tied));
  expect_plan_holds(write_tiny_checkpoint(folder / "hf", hugging_face(tiny_moe())));
  TinySpec headless = in_bf16(tiny_dense());
  headless.head = TinyHead::kNone;
  expect_plan_holds(write_tiny_checkpoint(folder / "headless", headless));
}

TEST(MemoryPlan, CountsRebuiltExpertsOnce) {
  TempFolder folder;
  TinySpec spec = in_bf16(tiny_moe());
  const WeightMemory stacked = weight_memory(described(write_tiny_checkpoint(folder / "stacked", spec)));
  EXPECT_EQ(stacked.copied, 0u);
  spec.expert_layout = TinyExperts::kPerExpert;
  spec.head_expert_layout = TinyExperts::kPerExpert;
  const auto rebuilt_folder = write_tiny_checkpoint(folder / "rebuilt", spec);
  const WeightMemory rebuilt = weight_memory(described(rebuilt_folder));
  EXPECT_GT(rebuilt.copied, 0u);
  EXPECT_EQ(rebuilt.total(), stacked.total());
  expect_plan_holds(rebuilt_folder);
}

TEST(MemoryPlan, CountsCompactAndCoarseDraftMatricesOnTopOfTheFullOne) {
  TempFolder folder;
  const auto at = write_tiny_checkpoint(folder / "plain", tiny_dense());
  LoadOptions options;
  options.experts = LoadOptions::Experts::kDescribe;
  const std::size_t whole = weight_memory(load_host_weights(at, options)).total();
  options.draft_vocabulary = std::vector<TokenRange>{{0, 95}};
  const HostWeights compact = load_host_weights(at, options);
  // 96 rows of 128 codes of 4 bits with two scales of BF16 for each 64: packed, and the sliced copy.
  EXPECT_EQ(weight_memory(compact).total() - whole, 2u * 96u * (128 / 2 + 2 * 2 * 2));
  const auto owned = [&](const std::filesystem::path& at_folder) {
    return Model(make_ops("cpu:1"), load_host_weights(at_folder, options),
                 {.max_rows = 8, .max_logit_rows = 1})
        .weights()
        .owned_bytes;
  };
  EXPECT_EQ(weight_memory(compact).owned, owned(at));

  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  const std::vector<float> coarse(96 * 128, 0.5f);
  for (StoredTensor& part : quantise_affine("draft_lm_head", {96}, 128, coarse, 2, 64))
    files.weights["mtp/model.safetensors"].push_back(std::move(part));
  files.write(folder / "shortlist");
  const WeightMemory with_shortlist = weight_memory(load_host_weights(folder / "shortlist", options));
  EXPECT_EQ(with_shortlist.total() - weight_memory(compact).total(), 96u * (128 / 4 + 2 * 2 * 2));
  EXPECT_EQ(with_shortlist.owned, owned(folder / "shortlist"));
}

TEST(MemoryPlan, GrowsWithTheContextByPages) {
  const HostWeights host = described(bundled("demo-dense-4bit"));
  const auto kv = [&](int context) { return memory_needed(host, context, {}).kv; };
  EXPECT_EQ(kv(1), kv(256));
  EXPECT_EQ(kv(257), 2 * kv(256));
  EXPECT_EQ(kv(32768), 128 * kv(256));
}

TEST(HostMemory, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  const auto ops = make_cpu_ops({});
  try {
    (void)ops->allocate(std::size_t{1} << 50);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_STREQ(error.what(), "host memory: expected 1125899906842624 bytes, got none");
  }
}

TEST(ReportedContexts, AreTheStandardOnesThatFit) {
  EXPECT_THAT(reported_contexts(262144, 262144), ElementsAre(4096, 32768, 262144));
  EXPECT_THAT(reported_contexts(16384, 16384), ElementsAre(4096, 16384));
  EXPECT_THAT(reported_contexts(2048, 2048), ElementsAre(2048));
  EXPECT_THAT(reported_contexts(4096, 32768), ElementsAre(4096, 32768));
}

}  // namespace
}  // namespace mererun
