#include "convert/recipe.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mererun {

namespace {

ModelConfig config_of(int layers, int experts = 0) {
  ModelConfig config;
  config.model_type = experts > 0 ? "qwen3_5_moe" : "qwen3_5";
  config.layers = layers;
  config.experts = experts;
  config.experts_per_token = experts > 0 ? 2 : 0;
  return config;
}

Recipe recipe(const std::string& profile, int layers = 64, int experts = 0) {
  return Recipe({.profile = profile}, config_of(layers, experts));
}

using Format = std::optional<AffineFormat>;

TEST(Recipe, OnePrecisionButForRoutersAndSharedGates) {
  const Recipe q4 = recipe("q4", 40, 256);
  for (const char* module : {"embed_tokens", "lm_head", "layers.0.linear_attn.in_proj_a",
                             "layers.7.mlp.switch_mlp.down_proj", "mtp.fc", "layers.3.mlp.gate_proj"})
    EXPECT_EQ(q4.format_of(module, 2048), (Format{{4, 64}})) << module;
  for (const char* module : {"layers.0.mlp.gate", "layers.0.mlp.shared_expert_gate", "mtp.layers.0.mlp.gate"})
    EXPECT_EQ(q4.format_of(module, 2048), (Format{{8, 64}})) << module;
  const Recipe q6 = Recipe({.profile = "q4", .bits = 6, .group = 128}, config_of(40, 256));
  EXPECT_EQ(q6.format_of("lm_head", 2048), (Format{{6, 128}}));
  EXPECT_EQ(q6.format_of("layers.0.mlp.gate", 2048), (Format{{8, 64}}));
}

TEST(Recipe, RowsThatAreNoMultipleOfTheGroupStay) {
  EXPECT_EQ(recipe("q4").format_of("layers.0.linear_attn.in_proj_qkv", 96), Format{});
  EXPECT_EQ(recipe("q4").format_of("layers.1.ple.ple_embedding.ngram_embedding.shard_0", 160),
            (Format{{4, 32}}));
}

TEST(Recipe, MixesFavourOuterLayersAndEveryThird) {
  const Recipe mixed = recipe("mixed-3-6", 64);
  const auto bits = [&](int layer, const char* module) {
    return mixed.format_of("layers." + std::to_string(layer) + "." + module, 5120)->bits;
  };
  // First eighth 0..7, last 56..63, and between them 10, 13, ...
  for (const int layer : {0, 7, 10, 13, 55, 56, 63}) {
    EXPECT_EQ(bits(layer, "self_attn.v_proj"), 6) << layer;
    EXPECT_EQ(bits(layer, "mlp.down_proj"), 6) << layer;
    EXPECT_EQ(bits(layer, "mlp.up_proj"), 3) << layer;
  }
  for (const int layer : {8, 9, 11, 12, 54}) EXPECT_EQ(bits(layer, "mlp.down_proj"), 3) << layer;
  EXPECT_EQ(mixed.format_of("lm_head", 5120)->bits, 6);
  EXPECT_EQ(mixed.format_of("embed_tokens", 5120)->bits, 3);
  EXPECT_EQ(mixed.format_of("mtp.layers.0.mlp.down_proj", 5120)->bits, 6);
  EXPECT_EQ(mixed.main(), (AffineFormat{3, 64}));
  EXPECT_EQ(recipe("mixed").format_of("lm_head", 5120)->bits, 6);
  EXPECT_EQ(recipe("mixed").main(), (AffineFormat{4, 64}));
}

TEST(Recipe, EveryNameIsKnownAndOthersAreRefused) {
  for (const std::string_view name : recipe_names())
    EXPECT_NO_THROW(recipe(std::string(name), 64, 8)) << name;
  EXPECT_THROW(recipe("mixed-1-9"), Error);
  EXPECT_THROW(Recipe({.profile = "mixed-3-6", .bits = 5}, config_of(64)), Error);
}

TEST(Recipe, ThreeBitExpertsNeedExperts) {
  const Recipe q3 = recipe("q3-activation", 48, 512);
  EXPECT_EQ(q3.format_of("layers.0.mlp.switch_mlp.up_proj", 2560), (Format{{3, 64}}));
  EXPECT_EQ(q3.format_of("layers.0.mlp.shared_expert.up_proj", 2560), (Format{{4, 64}}));
  EXPECT_EQ(q3.main(), (AffineFormat{4, 64}));
  EXPECT_THROW(recipe("q3-activation", 64), Error);
}

}  // namespace

}  // namespace mererun
