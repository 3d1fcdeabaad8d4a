// Checkpoints made by other programs: the bundled models and the golden ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "model/host_weights.h"
#include "model/resolve.h"

namespace mererun {
namespace {

using ::testing::IsEmpty;
namespace fs = std::filesystem;

const fs::path kSource = MERERUN_SOURCE_DIR;

/// The full golden set where it is at hand, else the committed part.
fs::path golden(const std::string& name) {
  const char* full = std::getenv("MERERUN_GOLDEN_DIR");
  if (full != nullptr && fs::exists(fs::path(full) / name)) return fs::path(full) / name;
  return fs::path(MERERUN_BINARY_DIR) / "golden" / name;
}

void expect_clean(const HostWeights& weights) {
  EXPECT_THAT(weights.report.notes, IsEmpty());
  EXPECT_THAT(weights.report.warnings, IsEmpty());
  EXPECT_EQ(weights.report.copied_bytes, 0u);
  EXPECT_TRUE(weights.head.has_value());
  EXPECT_FALSE(weights.config.tied);
}

TEST(BundledLoad, DemoModelsLoadWithoutANote) {
  for (const char* id : {"demo-dense-4bit", "demo-moe-4bit"}) {
    SCOPED_TRACE(id);
    const ResolvedModel model =
        resolve_model({.model = id, .root = ""},
                      {.models = "", .data_home = "", .home = "", .bundled = kSource / "models"});
    EXPECT_EQ(model.id, id);
    EXPECT_THAT(model.warnings, IsEmpty());
    const HostWeights weights = load_host_weights(model.folder, model.load_options());
    expect_clean(weights);
    EXPECT_EQ(weights.config.count(LayerKind::kDeltaNet), 6);
    EXPECT_EQ(weights.config.count(LayerKind::kAttention), 2);
    EXPECT_EQ(weights.report.trunk_norms, NormConvention::kFinal);
    EXPECT_EQ(weights.report.head_norms, NormConvention::kFinal);
    EXPECT_EQ(weights.report.head_place, HeadPlace::kSidecarFolder);
    EXPECT_THAT(weights.config.eos_ids, ::testing::ElementsAre(8162, 8160));
    EXPECT_EQ(weights.embed.bits, 4);
    EXPECT_EQ(weights.embed.group, 64);
    EXPECT_FALSE(weights.head->vocabulary.has_value());
  }
}

TEST(BundledLoad, GoldenMlxCheckpointsLoadWithoutANote) {
  const HostWeights dense = load_host_weights(golden("tiny-dense/mlx"));
  expect_clean(dense);
  EXPECT_EQ(dense.report.trunk_norms, NormConvention::kFinal);
  EXPECT_EQ(dense.config.heads, 6);
  const HostWeights moe = load_host_weights(golden("tiny-moe/mlx"));
  expect_clean(moe);
  EXPECT_EQ(std::get<HostMoe>(moe.layers[0].feed_forward).router.bits, 8);
  EXPECT_EQ(std::get<HostMoe>(moe.layers[0].feed_forward).expert_up.experts, 16);
}

// The other layouts are in the full golden set only; without it there is nothing to compare.
TEST(BundledLoad, GoldenHuggingFaceCheckpointsAgreeWithTheirMlxTwins) {
  for (const char* name : {"tiny-dense", "tiny-moe"}) {
    const fs::path folder = golden(std::string(name) + "/hf");
    if (!fs::exists(folder)) continue;
    SCOPED_TRACE(name);
    const HostWeights hf = load_host_weights(folder);
    expect_clean(hf);
    EXPECT_EQ(hf.report.trunk_norms, NormConvention::kZeroCentred);
    EXPECT_EQ(hf.report.head_norms, NormConvention::kZeroCentred);
    EXPECT_EQ(hf.report.head_place, HeadPlace::kTargetShards);
    // The converter rounds 1 + w to BF16: 2^-9 of the weight.
    const HostWeights mlx = load_host_weights(golden(std::string(name) + "/mlx"));
    ASSERT_EQ(hf.final_norm.size(), mlx.final_norm.size());
    for (std::size_t i = 0; i < hf.final_norm.size(); ++i) {
      EXPECT_NEAR(hf.final_norm[i], mlx.final_norm[i], 0.004 * std::abs(mlx.final_norm[i]) + 1e-6);
    }
    EXPECT_EQ(std::get<HostDeltaNet>(hf.layers[0].mixer).conv,
              std::get<HostDeltaNet>(mlx.layers[0].mixer).conv);
  }
}

}  // namespace
}  // namespace mererun
