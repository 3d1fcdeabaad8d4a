#include "model/host_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_weights.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace mererun::testing;
namespace fs = std::filesystem;

/// Every number of a model in the order of the walk, experts in order, whatever the layout.
std::vector<std::pair<std::string, std::vector<float>>> numbers(const HostWeights& weights) {
  std::vector<std::pair<std::string, std::vector<float>>> all;
  for_each_linear(weights, [&](std::string_view group, const LinearSource& source) {
    std::vector<float> values;
    for (int e = 0; e < source.experts; ++e) {
      const std::vector<float> one = dequantise(source, e);
      values.insert(values.end(), one.begin(), one.end());
    }
    all.emplace_back(group, std::move(values));
  });
  for_each_vector(weights, [&](std::string_view group, const std::vector<float>& values) {
    all.emplace_back(group, values);
  });
  return all;
}

void expect_same_numbers(const HostWeights& a, const HostWeights& b) {
  const auto left = numbers(a);
  const auto right = numbers(b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(left[i].second == right[i].second) << left[i].first;
  }
}

HostWeights load(const TinySpec& spec, const LoadOptions& options = {}) {
  TempFolder temp;  // the mapping outlives the files
  return load_host_weights(write_tiny_checkpoint(temp.path(), spec), options);
}

std::string kinds_of(const HostWeights& weights) {
  std::string text;
  for (const HostLayer& layer : weights.layers) text += layer.kind() == LayerKind::kDeltaNet ? 'L' : 'F';
  return text;
}

TEST(HostWeights, BindsEveryFieldOfADenseModel) {
  const HostWeights weights = load(tiny_dense());
  EXPECT_EQ(kinds_of(weights), "LLLF");
  EXPECT_THAT(weights.report.notes, IsEmpty());
  EXPECT_THAT(weights.report.warnings, IsEmpty());
  const auto& delta = std::get<HostDeltaNet>(weights.layers[0].mixer);
  EXPECT_EQ(delta.in_proj_qkv.out, 256);
  EXPECT_EQ(delta.in_proj_qkv.in, 128);
  EXPECT_EQ(delta.in_proj_qkv.bits, 4);
  EXPECT_EQ(delta.in_proj_qkv.group, 64);
  EXPECT_EQ(delta.conv.size(), 256u * 4u);
  EXPECT_EQ(delta.a_log.size(), 4u);
  EXPECT_EQ(delta.norm.size(), 32u);
  const auto& attention = std::get<HostAttention>(weights.layers[3].mixer);
  EXPECT_EQ(attention.q_proj.out, 2 * 6 * 32);
  EXPECT_EQ(attention.o_proj.in, 6 * 32);
  EXPECT_EQ(attention.q_norm.size(), 32u);
  EXPECT_EQ(std::get<HostMlp>(weights.layers[0].feed_forward).down.in, 192);
  ASSERT_TRUE(weights.head.has_value());
  EXPECT_EQ(weights.head->fc.in, 256);
  EXPECT_EQ(weights.head->layer.kind(), LayerKind::kAttention);
  EXPECT_TRUE(weights.head->draft_lm_head.empty());
  EXPECT_FALSE(weights.head->vocabulary.has_value());
  EXPECT_EQ(weights.report.head_place, HeadPlace::kSidecarFolder);
  EXPECT_EQ(weights.report.copied_bytes, 0u);
  EXPECT_NE(weights.lm_head.weight, weights.embed.weight);
}

TEST(HostWeights, VectorsAreWhatTheModelWasMadeOf) {
  const TinySpec spec = tiny_dense();
  const HostWeights weights = load(spec);
  const auto& delta = std::get<HostDeltaNet>(weights.layers[1].mixer);
  for (const TinyTensor& tensor : tiny_weights(spec)) {
    std::vector<float> expected = tensor.values;
    if (tensor.role == TinyTensor::Role::kNorm) {
      for (float& value : expected) value += 1.0f;
    }
    if (tensor.name == "layers.1.input_layernorm.weight") {
      EXPECT_EQ(weights.layers[1].input_norm, expected);
    } else if (tensor.name == "layers.1.linear_attn.conv1d.weight") {
      EXPECT_EQ(delta.conv, expected);  // [C, K], oldest tap first
    } else if (tensor.name == "layers.1.linear_attn.A_log") {
      EXPECT_EQ(delta.a_log, expected);
    } else if (tensor.name == "layers.1.linear_attn.dt_bias") {
      EXPECT_EQ(delta.dt_bias, expected);
    } else if (tensor.name == "layers.1.linear_attn.norm.weight") {
      EXPECT_EQ(delta.norm, expected);  // never shifted
    } else if (tensor.name == "norm.weight") {
      EXPECT_EQ(weights.final_norm, expected);
    } else if (tensor.name == "mtp.pre_fc_norm_hidden.weight") {
      EXPECT_EQ(weights.head->pre_fc_norm_hidden, expected);
    }
  }
}

// One model, every layout: names, conv axes, norm storage, expert layouts and places of the head change
// nothing.
TEST(HostWeights, LayoutsOfOneModelGiveTheSameNumbers) {
  for (const TinySpec& base : {tiny_dense(), tiny_moe()}) {
    const HostWeights mlx = load(in_bf16(base));
    EXPECT_EQ(mlx.report.trunk_norms, NormConvention::kFinal);
    const HostWeights hf = load(hugging_face(base));
    EXPECT_EQ(hf.report.trunk_norms, NormConvention::kZeroCentred);
    EXPECT_EQ(hf.report.head_norms, NormConvention::kZeroCentred);
    EXPECT_EQ(hf.report.copied_bytes, 0u);  // fused experts are views
    expect_same_numbers(mlx, hf);
    TinySpec text_only = hugging_face(base);
    text_only.naming = TinyNaming::kTextOnly;
    expect_same_numbers(mlx, load(text_only));
    for (const TinyHead head : {TinyHead::kShards, TinyHead::kSidecarFile, TinyHead::kSidecarFolder}) {
      for (const bool bare : {true, false}) {
        TinySpec placed = in_bf16(base);
        placed.head = head;
        placed.bare_head_names = bare;
        expect_same_numbers(mlx, load(placed));
      }
    }
  }
}

TEST(HostWeights, ExpertLayoutsGiveTheSameNumbers) {
  const HostWeights stacked = load(in_bf16(tiny_moe()));
  for (const TinyExperts layout : {TinyExperts::kFused, TinyExperts::kTransposed, TinyExperts::kPerExpert}) {
    TinySpec spec = in_bf16(tiny_moe());
    spec.expert_layout = layout;
    spec.head_expert_layout = TinyExperts::kPerExpert;  // the head may differ from the trunk
    const HostWeights weights = load(spec);
    expect_same_numbers(stacked, weights);
    EXPECT_EQ(weights.layers[0].owned.empty(), layout == TinyExperts::kFused);
    EXPECT_FALSE(weights.head->layer.owned.empty());
  }
}

TEST(HostWeights, TransposedExpertsAreToldApartWhereOneShapeFitsBoth) {
  // hidden = 2 * width: gate_up is square, only the down projection tells. hidden = width: only gate_up
  // tells.
  for (const int width : {64, 128}) {
    TinySpec spec = in_bf16(tiny_moe());
    spec.moe_intermediate = width;
    const HostWeights stacked = load(spec);
    for (const TinyExperts layout : {TinyExperts::kFused, TinyExperts::kTransposed}) {
      spec.expert_layout = layout;
      expect_same_numbers(stacked, load(spec));
    }
  }
}

TEST(HostWeights, QuantisedExpertLayoutsGiveTheSameNumbers) {
  const HostWeights stacked = load(tiny_moe());
  for (const TinyExperts layout : {TinyExperts::kFused, TinyExperts::kPerExpert}) {
    TinySpec spec = tiny_moe();
    spec.expert_layout = layout;
    const HostWeights weights = load(spec);
    expect_same_numbers(stacked, weights);
    EXPECT_THAT(weights.report.warnings, IsEmpty());
    const auto& moe = std::get<HostMoe>(weights.layers[0].feed_forward);
    EXPECT_EQ(moe.expert_gate.rows_between_experts(), layout == TinyExperts::kFused ? 128 : 64);
  }
}

TEST(HostWeights, QuantisedValuesAreCloseToTheModel) {
  const HostWeights full = load(in_bf16(tiny_dense()));
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64}) {
      TinySpec spec = tiny_dense();
      spec.precision = {bits, group};
      const HostWeights weights = load(spec);
      const LinearSource& packed = std::get<HostMlp>(weights.layers[0].feed_forward).up;
      EXPECT_EQ(packed.bits, bits);
      EXPECT_EQ(packed.group, group);
      const std::vector<float> got = dequantise(packed);
      const std::vector<float> expected = dequantise(std::get<HostMlp>(full.layers[0].feed_forward).up);
      double error = 0;
      double norm = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      // Uniform rounding of a range of about five deviations: 1.4 / (2^bits - 1) of the norm.
      const double relative = std::sqrt(error / norm) * ((1 << bits) - 1);
      EXPECT_LT(relative, 1.7) << bits << " bits, groups of " << group;
      EXPECT_GT(relative, 0.8) << bits << " bits, groups of " << group;
    }
  }
}

TEST(HostWeights, GroupsOf128) {
  TinySpec spec = tiny_dense();
  spec.precision = {4, 128};
  spec.intermediate = 256;
  spec.heads = 8;
  EXPECT_EQ(load(spec).embed.group, 128);
}

TEST(HostWeights, TiedModelsShareTheEmbedding) {
  TinySpec spec = tiny_dense();
  spec.tied = true;
  const HostWeights tied = load(spec);
  EXPECT_TRUE(tied.config.tied);
  EXPECT_EQ(tied.lm_head.weight, tied.embed.weight);
  EXPECT_THAT(tied.report.notes, IsEmpty());
  // Without lm_head the embedding serves, whatever the config says.
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(spec);
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  config["tie_word_embeddings"] = false;
  files.texts["config.json"] = config.dump();
  files.write(temp.path());
  const HostWeights untold = load_host_weights(temp.path());
  EXPECT_TRUE(untold.config.tied);
  EXPECT_THAT(untold.report.notes, ElementsAre(HasSubstr("lm_head")));
}

TEST(HostWeights, ATiedModelMayRepeatTheEmbeddingButNotContradictIt) {
  TempFolder temp;
  TinySpec spec = in_bf16(tiny_dense());
  TinyFiles files = make_tiny_checkpoint(spec);
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  config["tie_word_embeddings"] = true;
  files.texts["config.json"] = config.dump();
  files.write(temp / "other");
  EXPECT_THAT(list_load_problems(temp / "other"), ElementsAre(HasSubstr("lm_head.weight")));
  files.tensor("language_model.lm_head.weight").data =
      files.tensor("language_model.model.embed_tokens.weight").data;
  files.write(temp / "same");
  EXPECT_TRUE(load_host_weights(temp / "same").config.tied);
}

TEST(HostWeights, TheTensorsDecideTheLayerKind) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  config["text_config"]["layer_types"] = std::vector<std::string>(4, "linear_attention");
  files.texts["config.json"] = config.dump();
  files.write(temp.path());
  const HostWeights weights = load_host_weights(temp.path());
  EXPECT_EQ(weights.config.kinds[3], LayerKind::kAttention);
  EXPECT_THAT(weights.report.warnings, ElementsAre(HasSubstr("layer 3: config.json says linear_attention")));
}

TEST(HostWeights, VisionTensorsAreCountedNotUsed) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  const std::vector<float> zeros(4, 0.0f);
  files.weights["model.safetensors"].push_back(f32_tensor("vision_tower.patch_embed.proj.bias", {4}, zeros));
  files.weights["model.safetensors"].push_back(f32_tensor("model.visual.merger.norm.bias", {4}, zeros));
  files.write(temp.path());
  EXPECT_EQ(load_host_weights(temp.path()).report.vision_tensors, 2);
}

// B061, B062: a precision of its own per tensor, under either naming, checked against the packed shape.
TEST(HostWeights, EveryTensorHasItsOwnPrecision) {
  TinySpec spec = tiny_dense();
  spec.modules["layers.3.self_attn.v_proj"] = {6, 64};
  spec.modules["layers.0.mlp.down_proj"] = {8, 32};
  spec.modules["layers.1.mlp.down_proj"] = {0, 64};
  spec.modules["embed_tokens"] = {8, 64};
  for (const TinyNaming naming : {TinyNaming::kMlx, TinyNaming::kHf, TinyNaming::kTextOnly}) {
    spec.naming = naming;
    const HostWeights weights = load(spec);
    EXPECT_EQ(std::get<HostAttention>(weights.layers[3].mixer).v_proj.bits, 6);
    EXPECT_EQ(std::get<HostMlp>(weights.layers[0].feed_forward).down.group, 32);
    EXPECT_EQ(std::get<HostMlp>(weights.layers[1].feed_forward).down.format, WeightFormat::kDense);
    EXPECT_EQ(weights.embed.bits, 8);
    EXPECT_EQ(weights.lm_head.bits, 4);
    EXPECT_THAT(weights.report.notes, IsEmpty());
  }
}

TEST(HostWeights, EntriesInTheOtherNamingMatchToo) {
  TempFolder temp;
  TinySpec spec = tiny_dense();
  spec.modules["layers.3.self_attn.v_proj"] = {6, 64};
  TinyFiles files = make_tiny_checkpoint(spec);
  const auto with_key = [&](const std::string& key, int bits, const fs::path& folder) {
    nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
    config["quantization"] = {{"group_size", 64}, {"bits", 4}, {key, {{"bits", bits}}}};
    config.erase("quantization_config");
    TinyFiles changed = files;
    changed.texts["config.json"] = config.dump();
    changed.write(folder);
    return folder;
  };
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model.", ""}) {
    const std::string key = std::string(prefix) + "layers.3.self_attn.v_proj";
    EXPECT_THAT(list_load_problems(with_key(key, 6, temp / "right")), IsEmpty()) << key;
    EXPECT_THAT(list_load_problems(with_key(key, 4, temp / "wrong")),
                ElementsAre(AllOf(HasSubstr("4-bit g64"), HasSubstr(key), HasSubstr("6-bit g64"))));
  }
}

TEST(HostWeights, ADefaultThatSomeTensorsDoNotHaveIsANote) {
  TempFolder temp;
  TinySpec spec = tiny_dense();
  spec.modules["layers.0.mlp.up_proj"] = {8, 64};
  TinyFiles files = make_tiny_checkpoint(spec);
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  for (const char* key : {"quantization", "quantization_config"})
    config[key] = {{"group_size", 64}, {"bits", 4}};
  files.texts["config.json"] = config.dump();
  files.write(temp.path());
  const HostWeights weights = load_host_weights(temp.path());
  EXPECT_EQ(std::get<HostMlp>(weights.layers[0].feed_forward).up.bits, 8);
  EXPECT_THAT(weights.report.notes, ElementsAre(HasSubstr("layers.0.mlp.up_proj is 8-bit g64")));
}

// B063: sizes follow from the architecture; a declared precision that no tensor has is refused.
TEST(HostWeights, ADefaultThatNoTensorMatchesIsRefused) {
  for (const auto& [bits, group] : std::vector<std::pair<int, int>>{{2, 128}, {2, 64}, {4, 32}, {8, 64}}) {
    TempFolder temp;
    TinyFiles files = make_tiny_checkpoint(tiny_dense());
    nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
    for (const char* key : {"quantization", "quantization_config"})
      config[key] = {{"group_size", group}, {"bits", bits}};
    files.texts["config.json"] = config.dump();
    files.write(temp.path());
    EXPECT_THAT(list_load_problems(temp.path()),
                ElementsAre(AllOf(HasSubstr("4-bit g64"), HasSubstr("no tensor"))));
  }
}

TEST(HostWeights, TensorGroupsSumUpTheFile) {
  const HostWeights weights = load(tiny_moe());
  std::uint64_t bytes = 0;
  for (const TensorGroup& group : tensor_groups(weights)) {
    if (group.dtype == DType::kU32) bytes += group.bytes;
    if (group.name == "mlp.experts.gate_proj") {
      EXPECT_EQ(group.count, 4);
      EXPECT_EQ(group.bits, 4);
    }
    if (group.name == "mlp.gate") {
      EXPECT_EQ(group.bits, 8);
    }
  }
  EXPECT_LT(bytes, weights.report.mapped_bytes);
  EXPECT_GT(bytes, weights.report.mapped_bytes * 9 / 10);
}

ValueScan scan_of(const HostWeights& weights) {
  std::vector<const TensorEntry*> tensors;
  for (const auto& checkpoint : weights.checkpoints)
    for (const TensorEntry& tensor : checkpoint->tensors()) tensors.push_back(&tensor);
  return find_non_finite(tensors);
}

TEST(HostWeights, FindsNonFiniteNumbers) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  files.write(temp / "good");
  EXPECT_THAT(scan_of(load_host_weights(temp / "good")).problems, IsEmpty());
  StoredTensor& scales = files.tensor("language_model.model.layers.2.mlp.up_proj.scales");
  scales.data[6] = '\x80';
  scales.data[7] = '\x7f';                                        // +inf in BF16
  files.tensor("norm.weight").data.replace(0, 2, "\xc0\x7f", 2);  // the head's norm: NaN
  files.write(temp / "bad");
  EXPECT_THAT(scan_of(load_host_weights(temp / "bad")).problems,
              ElementsAre(AllOf(HasSubstr("layers.2.mlp.up_proj.scales"), HasSubstr("element 3")),
                          AllOf(HasSubstr("norm.weight"), HasSubstr("element 0"))));
}

/// Bytes of mapped files that the process has in memory.
std::uint64_t resident_file_bytes() {
  std::uint64_t size = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return shared * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(HostWeights, AScanTakesAPartOfALargeTensorIntoMemory) {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  TempFolder temp;
  {
    std::ofstream file(temp / "table.bin", std::ios::binary);
    file.seekp(kBytes - 2);     // the rest is a hole
    file.write("\x80\xff", 2);  // -inf in BF16
  }
  const MappedFile file(temp / "table.bin");
  TensorEntry tensor;
  tensor.stored_name = "table";
  tensor.dtype = DType::kBF16;
  tensor.data = file.data();
  tensor.bytes = file.size();
  tensor.file = &file;
  const TensorEntry* const tensors[] = {&tensor, &tensor};
  const std::uint64_t before = resident_file_bytes();
  std::uint64_t largest = 0;
  std::uint64_t steps = 0;
  const ValueScan scan = find_non_finite(tensors, [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, 2 * kBytes);
    ++steps;
    largest = std::max(largest, resident_file_bytes());
    return done < kBytes + kBytes / 2;
  });
  EXPECT_THAT(scan.problems, ElementsAre(AllOf(HasSubstr("element 134217727 in table.bin"))));
  EXPECT_EQ(scan.tensors, 1u);
  EXPECT_TRUE(scan.is_stopped) << "inside the second";
  EXPECT_GT(steps, 20u);
  EXPECT_LT(largest, before + kBytes / 4);
}

}  // namespace
}  // namespace mererun
