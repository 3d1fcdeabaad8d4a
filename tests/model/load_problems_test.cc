#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/host_weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using namespace mererun::testing;

const std::string kLayer3 = "language_model.model.layers.3.";

/// The problems of a checkpoint after a change.
std::vector<std::string> problems_after(const TinySpec& spec, const std::function<void(TinyFiles&)>& change,
                                        const LoadOptions& options = {}) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(spec);
  change(files);
  files.write(temp.path());
  return list_load_problems(temp.path(), options);
}

TEST(LoadProblems, AMissingTensorIsNamedWithItsShape) {
  EXPECT_THAT(problems_after(in_bf16(tiny_dense()),
                             [](TinyFiles& f) { f.erase(kLayer3 + "self_attn.q_proj.weight"); }),
              ElementsAre("layers.3.self_attn.q_proj.weight: expected [384, 128], got no such tensor"));
  EXPECT_THAT(
      problems_after(tiny_moe(), [](TinyFiles& f) { f.erase(kLayer3 + "mlp.switch_mlp.up_proj.biases"); }),
      ElementsAre(HasSubstr("layers.3.mlp.switch_mlp.up_proj.biases: expected [8, 64, 2] BF16")));
}

TEST(LoadProblems, AMisshapenTensorIsNamedWithFileExpectedAndFound) {
  const auto problems = problems_after(in_bf16(tiny_dense()), [](TinyFiles& f) {
    f.tensor(kLayer3 + "self_attn.q_proj.weight").shape = {128, 384};
  });
  EXPECT_THAT(problems, ElementsAre(AllOf(HasSubstr(kLayer3 + "self_attn.q_proj.weight"),
                                          HasSubstr("expected [384, 128] BF16, F16 or F32"),
                                          HasSubstr("got [128, 384] BF16 in model.safetensors"))));
}

TEST(LoadProblems, ALeftOverTensorIsNamed) {
  EXPECT_THAT(
      problems_after(
          tiny_dense(),
          [](TinyFiles& f) {
            f.weights["model.safetensors"].push_back({kLayer3 + "extra.weight", DType::kU8, {1}, "x"});
          }),
      ElementsAre(AllOf(HasSubstr(kLayer3 + "extra.weight: expected no tensor of this name"),
                        HasSubstr("[1] U8 in model.safetensors"))));
}

TEST(LoadProblems, AWrongDtypeIsNamed) {
  const auto problems = problems_after(tiny_dense(), [](TinyFiles& f) {
    StoredTensor& norm = f.tensor(kLayer3 + "input_layernorm.weight");
    norm.dtype = DType::kI16;
  });
  EXPECT_THAT(problems,
              ElementsAre(AllOf(HasSubstr("expected [128] BF16, F16 or F32"), HasSubstr("got [128] I16"))));
}

TEST(LoadProblems, AllAreListedTogetherUpToTwenty) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  auto& tensors = files.weights["model.safetensors"];
  std::erase_if(tensors,
                [](const StoredTensor& t) { return t.name.starts_with("language_model.model.layers.0."); });
  std::erase_if(
      tensors, [](const StoredTensor& t) { return t.name.starts_with("language_model.model.layers.1.mlp"); });
  std::erase_if(
      tensors, [](const StoredTensor& t) { return t.name.starts_with("language_model.model.layers.2.mlp"); });
  files.erase("language_model.model.layers.1.linear_attn.A_log");
  files.write(temp.path());
  const std::vector<std::string> all = list_load_problems(temp.path());
  ASSERT_THAT(all, SizeIs(22));
  EXPECT_THAT(
      all,
      Contains(HasSubstr("layers.0: expected either linear_attn.* or self_attn.* tensors, got neither")));
  try {
    (void)load_host_weights(temp.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("got 22 problems: "), HasSubstr(all[19]), HasSubstr("; and 2 more")));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr(all[20])));
  }
}

TEST(LoadProblems, BothMixersInOneLayerAreRefused) {
  const auto problems = problems_after(tiny_dense(), [](TinyFiles& f) {
    f.weights["model.safetensors"].push_back(
        {kLayer3 + "linear_attn.A_log", DType::kF32, {4}, std::string(16, '\0')});
  });
  EXPECT_THAT(
      problems,
      Contains(HasSubstr("layers.3: expected either linear_attn.* or self_attn.* tensors, got both")));
}

TEST(LoadProblems, PackedWeightsAreCheckedAgainstTheirScales) {
  const std::string up = kLayer3 + "mlp.up_proj";
  // Scales gone: the packed words alone mean nothing.
  EXPECT_THAT(problems_after(tiny_dense(),
                             [&](TinyFiles& f) {
                               f.erase(up + ".scales");
                               f.erase(up + ".biases");
                             }),
              ElementsAre(AllOf(HasSubstr("or layers.3.mlp.up_proj.scales beside it"), HasSubstr("U32"))));
  EXPECT_THAT(problems_after(tiny_dense(),
                             [&](TinyFiles& f) {
                               f.tensor(up + ".biases").shape = {2, 192};
                             }),
              ElementsAre(HasSubstr("as its scales")));
  EXPECT_THAT(
      problems_after(tiny_dense(), [&](TinyFiles& f) { f.tensor(up + ".weight").dtype = DType::kF32; }),
      ElementsAre(HasSubstr("[192, 128 * bits / 32] U32")));
  EXPECT_THAT(problems_after(tiny_dense(),
                             [&](TinyFiles& f) {
                               for (const char* part : {".scales", ".biases"}) {
                                 f.tensor(up + part).shape = {192, 3};
                                 f.tensor(up + part).data.resize(192 * 3 * 2);
                               }
                             }),
              ElementsAre(HasSubstr("(its scales have 3 columns)")));
  EXPECT_THAT(problems_after(tiny_dense(),
                             [&](TinyFiles& f) {
                               for (const char* part : {".scales", ".biases"}) {
                                 f.tensor(up + part).dtype = DType::kU8;
                                 f.tensor(up + part).data.resize(192 * 2);
                               }
                             }),
              ElementsAre(HasSubstr("[192, 128 / group] BF16, F16 or F32")));
}

TEST(LoadProblems, ExpertsOfUnlikePrecisionAreRefused) {
  TinySpec spec = in_bf16(tiny_moe());
  spec.expert_layout = TinyExperts::kPerExpert;
  EXPECT_THAT(problems_after(spec,
                             [](TinyFiles& f) {
                               StoredTensor& one = f.tensor(kLayer3 + "mlp.experts.5.up_proj.weight");
                               one.dtype = DType::kF16;
                             }),
              ElementsAre(HasSubstr("layers.3.mlp.experts.5.up_proj: expected the precision of")));
  EXPECT_THAT(problems_after(spec, [](TinyFiles& f) { f.erase(kLayer3 + "mlp.experts.7.up_proj.weight"); }),
              ElementsAre(HasSubstr("layers.3.mlp.experts.7.up_proj.weight: expected [64, 128]")));
}

TEST(LoadProblems, MissingExpertsAreNamed) {
  const auto problems = problems_after(in_bf16(tiny_moe()), [](TinyFiles& f) {
    for (const char* p : {"gate", "up", "down"}) f.erase(kLayer3 + "mlp.switch_mlp." + p + "_proj.weight");
  });
  EXPECT_THAT(problems, SizeIs(3));
  EXPECT_THAT(problems,
              Contains(HasSubstr("layers.3.mlp.switch_mlp.down_proj.weight: expected [8, 128, 64]")));
}

TEST(LoadProblems, TrunkNormsMustAgreeWithTheConvAxes) {
  TinySpec spec = tiny_dense();
  spec.norms = NormConvention::kZeroCentred;  // beside [C, K, 1]
  const auto unchanged = [](TinyFiles&) {};
  EXPECT_THAT(problems_after(spec, unchanged),
              ElementsAre(AllOf(HasSubstr("expected final ones"), HasSubstr("negative entries"),
                                HasSubstr("mererun.json"))));
  LoadOptions stated;
  stated.norm_convention = NormConvention::kZeroCentred;
  EXPECT_THAT(problems_after(spec, unchanged, stated), SizeIs(0));
  TinySpec other = hugging_face(tiny_dense());
  other.norms = NormConvention::kFinal;
  EXPECT_THAT(problems_after(other, unchanged), ElementsAre(HasSubstr("expected zero-centred ones")));
  // Layers of both orders can't come from one converter.
  EXPECT_THAT(
      problems_after(
          tiny_dense(),
          [](TinyFiles& f) {
            f.tensor("language_model.model.layers.0.linear_attn.conv1d.weight").shape = {256, 1, 4};
          }),
      ElementsAre(HasSubstr("expected one axis order, got 1 layers of [C, 1, K] and 2 of [C, K, 1]")));
}

TEST(LoadProblems, FlashNextIsRefusedByName) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_moe());
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  config["model_type"] = "qwen4_exp";
  config["text_config"].update({{"hc_count", 4},
                                {"hc_lowrank", 64},
                                {"indexer_n_heads", 4},
                                {"indexer_head_dim", 128},
                                {"indexer_budget", 64},
                                {"indexer_compress_ratio", 4},
                                {"ple_embed_dim", 512},
                                {"ngram_size", 3},
                                {"heads_per_ngram", 8},
                                {"ngram_vocab_size_base", 1009},
                                {"split_ngram_parts", 4}});
  files.texts["config.json"] = config.dump();
  files.write(temp.path());
  try {
    (void)load_host_weights(temp.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("flash-next"));
  }
}

}  // namespace
}  // namespace mererun
