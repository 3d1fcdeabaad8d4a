#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

/// The config.json of a tiny model. The weights behind it are made once per family.
Json tiny_config(const testing::TinySpec& spec) {
  static const std::string dense =
      testing::make_tiny_checkpoint(testing::tiny_dense()).texts.at("config.json");
  static const std::string moe = testing::make_tiny_checkpoint(testing::tiny_moe()).texts.at("config.json");
  return Json::parse(spec.moe ? moe : dense);
}

ModelConfig parse(const Json& config, std::string_view generation = "") {
  return parse_config(config.dump(), generation, "");
}

/// The error that parsing must throw.
Error error_of(const Json& config, std::string_view generation = "") {
  try {
    (void)parse(config, generation);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown for " << config.dump();
  return Error(ErrorCode::kInternal, "");
}

TEST(Config, ReadsDenseGeometry) {
  const ModelConfig config = parse(tiny_config(testing::tiny_dense()));
  EXPECT_EQ(config.family, Family::kDense);
  EXPECT_FALSE(config.is_moe());
  EXPECT_EQ(config.hidden, 128);
  EXPECT_EQ(config.attention_dim(), 192);
  EXPECT_EQ(config.kv_dim(), 32);
  EXPECT_EQ(config.key_dim(), 64);
  EXPECT_EQ(config.value_dim(), 128);
  EXPECT_EQ(config.conv_dim(), 256);
  EXPECT_EQ(config.intermediate, 192);
  EXPECT_EQ(config.rope.rotary_dims, 8);  // a quarter of the head, whatever mrope says
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_EQ(config.output_gate, OutputGate::kSwish);
  EXPECT_THAT(config.kinds, ElementsAre(LayerKind::kDeltaNet, LayerKind::kDeltaNet, LayerKind::kDeltaNet,
                                        LayerKind::kAttention));
  EXPECT_EQ(config.count(LayerKind::kDeltaNet), 3);
  EXPECT_THAT(config.warnings, IsEmpty());
}

TEST(Config, ReadsMoeGeometry) {
  Json json = tiny_config(testing::tiny_moe());
  json["text_config"].erase("norm_topk_prob");
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.family, Family::kMoe);
  EXPECT_TRUE(config.is_moe());
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.experts_per_token, 2);
  EXPECT_EQ(config.moe_intermediate, 64);
  EXPECT_EQ(config.shared_intermediate, 64);
  EXPECT_TRUE(config.norm_topk_prob);
  json["text_config"]["norm_topk_prob"] = false;
  EXPECT_FALSE(parse(json).norm_topk_prob);
}

TEST(Config, ReadsTextOnlyExportsFromTheTopLevel) {
  Json json = tiny_config(testing::tiny_dense());
  Json flat = json["text_config"];
  const ModelConfig config = parse(flat);
  EXPECT_EQ(config.model_type, "qwen3_5_text");
  EXPECT_EQ(config.family, Family::kDense);
  EXPECT_EQ(config.hidden, 128);
}

TEST(Config, IgnoresUnknownKeys) {
  Json json = tiny_config(testing::tiny_dense());
  json["something_new"] = {{"deep", {1, 2, 3}}};
  json["text_config"]["something_else"] = "x";
  EXPECT_EQ(parse(json).hidden, 128);
}

TEST(Config, ReadsLayersFromListOrInterval) {
  Json json = tiny_config(testing::tiny_dense());
  json["text_config"]["full_attention_interval"] = 2;
  EXPECT_EQ(parse(json).count(LayerKind::kAttention), 2);
  json["text_config"]["layer_types"] = {"full_attention", "linear_attention", "linear_attention",
                                        "linear_attention"};
  EXPECT_EQ(parse(json).kinds.front(), LayerKind::kAttention);
  json["text_config"]["layer_types"] = {"full_attention", "linear_attention"};
  EXPECT_THAT(error_of(json).what(),
              HasSubstr("layer_types: expected 4 entries (num_hidden_layers), got 2 entries"));
  json["text_config"]["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                                        "full_attention"};
  EXPECT_EQ(error_of(json).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(json).what(), HasSubstr("sliding_attention"));
}

// B073: rope parameters under `rope_parameters` or the older keys, the type as `rope_type` or `type`.
TEST(Config, RopeSpellingsGiveOneResult) {
  const Json base = tiny_config(testing::tiny_dense());
  const Json yarn{{"factor", 4.0}, {"original_max_position_embeddings", 262144}};
  std::vector<Json> spellings(5, base);
  spellings[0]["text_config"]["rope_parameters"] = yarn;
  spellings[0]["text_config"]["rope_parameters"]["rope_type"] = "yarn";
  spellings[0]["text_config"]["rope_parameters"]["rope_theta"] = 10000000;
  spellings[0]["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.25;
  spellings[1] = spellings[0];
  spellings[1]["text_config"]["rope_parameters"].erase("rope_theta");
  spellings[1]["text_config"]["rope_theta"] = 1e7;
  for (std::size_t i = 2; i < 5; ++i) {
    Json& text = spellings[i]["text_config"];
    text.erase("rope_parameters");
    text["rope_theta"] = 10000000.0;
    text["partial_rotary_factor"] = 0.25;
    text["rope_scaling"] = yarn;
    text["rope_scaling"][i == 2 ? "type" : "rope_type"] = "yarn";
  }
  spellings[4]["text_config"].erase("partial_rotary_factor");  // the default
  for (const Json& spelling : spellings) {
    const ModelConfig config = parse(spelling);
    EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
    EXPECT_EQ(config.rope.factor, 4);
    EXPECT_EQ(config.rope.original_max_positions, 262144);
    EXPECT_EQ(config.rope.beta_fast, 32);
    EXPECT_EQ(config.rope.beta_slow, 1);
    EXPECT_FALSE(config.rope.attention_factor.has_value());
    EXPECT_EQ(config.rope.theta, 1e7);
    EXPECT_EQ(config.rope.rotary_dims, 8);
    EXPECT_THAT(config.warnings, IsEmpty());
  }
}

TEST(Config, RefusesUnknownOrContradictoryRope) {
  Json json = tiny_config(testing::tiny_dense());
  json["text_config"]["rope_parameters"]["rope_type"] = "foo";
  EXPECT_EQ(error_of(json).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(json).what(), HasSubstr("rope_type: expected default or yarn, got foo"));
  json["text_config"]["rope_parameters"]["rope_type"] = "default";
  json["text_config"]["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 1024}};
  EXPECT_EQ(error_of(json).code(), ErrorCode::kCorruptData);
  json["text_config"].erase("rope_scaling");
  json["text_config"]["rope_theta"] = 5000;
  EXPECT_THAT(parse(json).warnings, ElementsAre(HasSubstr("rope_theta")));
  EXPECT_EQ(parse(json).rope.theta, 1e7);
  json["text_config"].erase("rope_theta");
  json["text_config"]["rope_parameters"].erase("rope_theta");
  EXPECT_THAT(error_of(json).what(), HasSubstr("rope_theta"));
  json["text_config"]["rope_theta"] = 1e7;
  json["text_config"]["rope_parameters"]["partial_rotary_factor"] = 0.1;  // 3.2 dimensions
  EXPECT_THAT(error_of(json).what(), HasSubstr("partial_rotary_factor"));
}

TEST(Config, UnitesEndOfTextIds) {
  Json json = tiny_config(testing::tiny_dense());
  json["text_config"]["eos_token_id"] = 7;
  json["eos_token_id"] = {9, 7};
  json["generation_config"] = {{"eos_token_id", {11}}, {"temperature", 0.5}};
  const ModelConfig config =
      parse(json, R"({"eos_token_id": [13, 9], "top_k": 20, "top_p": 0.95, "do_sample": true})");
  EXPECT_THAT(config.eos_ids, ElementsAre(13, 9, 11, 7));
  EXPECT_EQ(config.generation.top_k, 20);
  EXPECT_EQ(config.generation.top_p, 0.95);
  EXPECT_EQ(config.generation.temperature, 0.5);
  EXPECT_EQ(config.generation.do_sample, true);
  json["eos_token_id"] = 256;
  EXPECT_THAT(error_of(json).what(), HasSubstr("eos_token_id"));
}

TEST(Config, SamplingDefaultsAreOnesThatARequestMayHave) {
  const Json json = tiny_config(testing::tiny_dense());
  for (const char* bad : {R"({"temperature": 2.5})", R"({"temperature": -1})", R"({"top_p": 0})",
                          R"({"top_p": 1.5})", R"({"top_k": -2})", R"({"min_p": 2})"}) {
    const Error error = error_of(json, bad);
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(), HasSubstr("generation_config.json")) << bad;
  }
  EXPECT_EQ(parse(json, R"({"top_k": -1})").generation.top_k, 0);
  EXPECT_EQ(parse(json, R"({"temperature": 2})").generation.temperature, 2);
}

TEST(Config, TieMayStandAtEitherLevel) {
  Json json = tiny_config(testing::tiny_dense());
  json.erase("tie_word_embeddings");
  EXPECT_FALSE(parse(json).tied);
  json["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse(json).tied);
  json["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(json).tied);
  EXPECT_THAT(parse(json).warnings, ElementsAre(HasSubstr("tie_word_embeddings")));
}

struct Range {
  const char* key;
  Json value;
};

class ConfigRange : public ::testing::TestWithParam<Range> {};

TEST_P(ConfigRange, NamesKeyExpectedAndGot) {
  Json json = tiny_config(testing::tiny_moe());
  json["text_config"][GetParam().key] = GetParam().value;
  const Error error = error_of(json);
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
  EXPECT_THAT(error.what(), HasSubstr(GetParam().key));
  EXPECT_THAT(error.what(), HasSubstr("expected"));
  EXPECT_THAT(error.what(), HasSubstr("got"));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigRange,
    ::testing::Values(Range{"hidden_size", 0}, Range{"hidden_size", -1}, Range{"hidden_size", "128"},
                      Range{"hidden_size", nullptr}, Range{"hidden_size", 1.5},
                      Range{"hidden_size", 1ull << 40}, Range{"vocab_size", 0}, Range{"num_hidden_layers", 0},
                      Range{"num_hidden_layers", 100000}, Range{"num_attention_heads", 0},
                      Range{"num_key_value_heads", 3}, Range{"head_dim", 1}, Range{"linear_num_key_heads", 0},
                      Range{"linear_num_value_heads", 3}, Range{"linear_conv_kernel_dim", 1},
                      Range{"num_experts", 0}, Range{"num_experts_per_tok", 9},
                      Range{"moe_intermediate_size", 0}, Range{"shared_expert_intermediate_size", -4},
                      Range{"max_position_embeddings", 0}, Range{"rms_norm_eps", -1},
                      Range{"rms_norm_eps", "x"}, Range{"layer_types", 3}, Range{"rope_parameters", 3}));

TEST(Config, RefusesVariantsThatTheFormulasExclude) {
  const std::vector<std::pair<std::string, Json>> variants{{"attention_bias", true},
                                                           {"attn_output_gate", false},
                                                           {"hidden_act", "gelu"},
                                                           {"output_gate_type", "tanh"},
                                                           {"decoder_sparse_step", 2},
                                                           {"mlp_only_layers", {1}},
                                                           {"mtp_use_dedicated_embeddings", true}};
  for (const auto& [key, value] : variants) {
    Json json = tiny_config(testing::tiny_moe());
    json["text_config"][key] = value;
    const Error error = error_of(json);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << key;
    EXPECT_THAT(error.what(), HasSubstr(key));
  }
  Json harmless = tiny_config(testing::tiny_moe());
  harmless["text_config"]["decoder_sparse_step"] = 1;
  harmless["text_config"]["mlp_only_layers"] = Json::array();
  harmless["text_config"]["output_gate_type"] = "silu";
  EXPECT_EQ(parse(harmless).output_gate, OutputGate::kSwish);
}

TEST(Config, RefusesOtherModelTypes) {
  Json json = tiny_config(testing::tiny_dense());
  json["model_type"] = "llama";
  EXPECT_EQ(error_of(json).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(json).what(), HasSubstr("got llama"));
  json["model_type"] = "qwen3_5_mtp";
  EXPECT_THAT(error_of(json).hint(), HasSubstr("--mtp-root"));
}

TEST(Config, BadJsonIsAnErrorThatNamesTheFile) {
  for (const char* text : {"", "{", "[1]", "{\"model_type\": }", "null"}) {
    try {
      (void)parse_config(text, "", "folder");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
      EXPECT_THAT(error.what(), HasSubstr("folder/config.json"));
    }
  }
}

/// A config.json of the third family.
Json flash_config() {
  const Json text{{"model_type", "qwen4_exp_text"},
                  {"vocab_size", 512},
                  {"hidden_size", 128},
                  {"num_hidden_layers", 8},
                  {"num_attention_heads", 4},
                  {"num_key_value_heads", 2},
                  {"linear_num_key_heads", 2},
                  {"linear_num_value_heads", 4},
                  {"max_position_embeddings", 4096},
                  {"num_experts", 16},
                  {"num_experts_per_tok", 4},
                  {"moe_intermediate_size", 64},
                  {"shared_expert_intermediate_size", 64},
                  {"hc_count", 4},
                  {"hc_lowrank", 64},
                  {"indexer_n_heads", 4},
                  {"indexer_head_dim", 128},
                  {"indexer_budget", 64},
                  {"indexer_compress_ratio", 4},
                  {"ple_layer_ids", {2}},
                  {"ple_embed_dim", 512},
                  {"ngram_size", 3},
                  {"heads_per_ngram", 8},
                  {"ngram_vocab_size_base", 1009},
                  {"split_ngram_parts", 4},
                  {"eos_token_id", 500},
                  {"rope_parameters", {{"rope_theta", 1e7}}}};
  return {{"model_type", "qwen4_exp"}, {"text_config", text}};
}

TEST(Config, ParsesFlashNext) {
  const ModelConfig config = parse(flash_config());
  EXPECT_EQ(config.family, Family::kFlashNext);
  EXPECT_EQ(config.output_gate, OutputGate::kSigmoid);
  ASSERT_TRUE(config.flash.has_value());
  EXPECT_EQ(config.flash->streams, 4);
  EXPECT_THAT(config.flash->ngram_layers, ElementsAre(1));  // the file counts from one
}

TEST(Config, TheEndOfATextThatCutsNgramsIsFoundWhereverItIsStated) {
  Json json = flash_config();
  const auto cut = [&] { return parse(json).flash->ngram_cut; };
  json["bos_token_id"] = 1;
  json["eos_token_id"] = {2, 3};
  json["text_config"]["bos_token_id"] = 4;
  json["text_config"]["eos_token_id"] = {5, 6};
  EXPECT_EQ(cut(), 5);
  for (const TokenId next : {4, 2, 1}) {
    (next == 1 ? json : json["text_config"]).erase(next == 2 ? "bos_token_id" : "eos_token_id");
    EXPECT_EQ(cut(), next);
  }
  json.erase("bos_token_id");
  EXPECT_EQ(error_of(json).code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error_of(json).what(), HasSubstr("eos_token_id: expected the id of the end of a text"));
  json["text_config"].erase("ple_layer_ids");  // no n-grams, nothing to cut
  EXPECT_EQ(cut(), 0);
}

TEST(Config, ABudgetOfSparseAttentionIsNoWiderThanARow) {
  Json json = flash_config();
  for (const int budget : {4, 1 << 20}) {
    json["text_config"]["indexer_budget"] = budget;
    EXPECT_EQ(parse(json).flash->budget_blocks(), budget / 4);
  }
  for (const std::int64_t budget : {0, 6, (1 << 20) + 4, 1 << 28}) {
    json["text_config"]["indexer_budget"] = budget;
    EXPECT_EQ(error_of(json).code(), ErrorCode::kCorruptData) << budget;
    EXPECT_THAT(error_of(json).what(), HasSubstr("indexer_budget: expected"));
  }
}

TEST(Config, QuantizationEntriesMatchUnderEitherNaming) {
  Json json = tiny_config(testing::tiny_dense());
  json["quantization"] = {{"group_size", 64},
                          {"bits", 4},
                          {"model.language_model.layers.0.mlp.up_proj", {{"bits", 6}}},
                          {"language_model.model.layers.1.mlp.up_proj", {{"bits", 8}, {"group_size", 32}}},
                          {"lm_head", false}};
  json.erase("quantization_config");
  const QuantizationConfig& read = parse(json).quantization;
  EXPECT_TRUE(read.present);
  ASSERT_THAT(read.modules, SizeIs(3));
  EXPECT_EQ(read.modules.at("layers.0.mlp.up_proj").bits, 6);
  EXPECT_EQ(read.modules.at("layers.0.mlp.up_proj").group, 64);
  EXPECT_EQ(read.modules.at("layers.1.mlp.up_proj").group, 32);
  EXPECT_FALSE(read.modules.at("lm_head").quantised);
}

TEST(Config, RefusesOtherQuantizations) {
  Json json = tiny_config(testing::tiny_dense());
  json.erase("quantization_config");
  json["quantization"]["mode"] = "mxfp4";
  EXPECT_EQ(error_of(json).code(), ErrorCode::kUnsupported);
  json["quantization"] = {{"bits", 7}};
  EXPECT_THAT(error_of(json).what(), HasSubstr("bits: expected 2, 3, 4, 5, 6 or 8, got 7"));
  json["quantization"] = {{"bits", 4}, {"group_size", 16}};
  EXPECT_THAT(error_of(json).what(), HasSubstr("group_size"));
  json.erase("quantization");
  json["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(error_of(json).code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error_of(json).what(), HasSubstr("got fp8"));
}

}  // namespace
}  // namespace mererun
