// Whole conversions of tiny checkpoints: every layout of the source, every tensor of the result.
#include "convert/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "model/host_weights.h"
#include "model/manifest.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/file_text.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_weights.h"

namespace mererun::testing {

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

ConversionOptions options_for(const fs::path& source, const fs::path& output) {
  ConversionOptions options;
  options.source = source;
  options.output = output;
  options.threads = 2;
  return options;
}

LoadOptions manifest_options(const fs::path& folder) {
  const std::optional<ModelManifest> manifest = load_manifest(folder);
  LoadOptions options;
  if (manifest) manifest->apply_to(options);
  return options;
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "nothing was thrown");
}

class Convert : public ::testing::Test {
 protected:
  fs::path source(const TinySpec& spec, const std::function<void(TinyFiles&)>& change = {}) {
    TinyFiles files = make_tiny_checkpoint(spec);
    if (change) change(files);
    const fs::path path = folder_ / "source";
    fs::remove_all(path);
    files.write(path);
    return path;
  }
  fs::path output() const { return folder_ / "output"; }

  /// Every matrix of the result is what the quantiser makes of the model's numbers, every vector what loading
  /// makes of the source's.
  void expect_faithful(const TinySpec& spec, const fs::path& source_folder, const fs::path& result) {
    const HostWeights from = load_host_weights(source_folder, manifest_options(source_folder));
    const HostWeights to = load_host_weights(result, manifest_options(result));
    std::vector<std::pair<std::string, const LinearSource*>> before, after;
    for_each_linear(from, [&](std::string_view g, const LinearSource& s) { before.emplace_back(g, &s); });
    for_each_linear(to, [&](std::string_view g, const LinearSource& s) { after.emplace_back(g, &s); });
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].first, after[i].first);
      expect_quantised(*before[i].second, *after[i].second, spec);
    }
    std::vector<std::vector<float>> vectors;
    for_each_vector(from, [&](std::string_view, const std::vector<float>& v) { vectors.push_back(v); });
    std::size_t next = 0;
    for_each_vector(to, [&](std::string_view group, const std::vector<float>& got) {
      const std::vector<float>& want = vectors.at(next++);
      ASSERT_EQ(want.size(), got.size()) << group;
      const bool is_exact = group.find("A_log") != std::string_view::npos;
      for (std::size_t k = 0; k < got.size(); ++k)
        ASSERT_EQ(got[k], is_exact ? want[k] : bf16_to_f32(f32_to_bf16(want[k]))) << group << " " << k;
    });
    EXPECT_EQ(next, vectors.size());
  }

  void expect_faithful_in_layouts(TinySpec spec, std::initializer_list<TinyExperts> layouts) {
    for (const TinyExperts layout : layouts) {
      spec.expert_layout = spec.head_expert_layout = layout;
      const fs::path from = source(spec);
      fs::remove_all(output());
      convert_checkpoint(options_for(from, output()));
      expect_faithful(spec, from, output());
    }
  }

  static void expect_quantised(const LinearSource& from, const LinearSource& to, const TinySpec& spec) {
    ASSERT_EQ(to.format, WeightFormat::kAffine) << to.name;
    const bool is_gate = to.name.ends_with("mlp.gate") || to.name.ends_with("shared_expert_gate");
    EXPECT_EQ(to.bits, spec.moe && is_gate ? 8 : 4) << to.name;
    ASSERT_EQ(from.experts, to.experts);
    for (int e = 0; e < from.experts; ++e) {
      const std::vector<float> values = dequantise(from, e);
      const AffineFormat format{to.bits, to.group};
      std::vector<std::byte> codes(values.size() * static_cast<std::size_t>(to.bits) / 8);
      std::vector<std::uint16_t> scales(values.size() / static_cast<std::size_t>(to.group));
      std::vector<std::uint16_t> biases(scales.size());
      quantise_affine_rows(values, format, {codes.data(), scales.data(), biases.data()});
      const auto row = static_cast<std::size_t>(e * to.rows_between_experts());
      const auto at = [&](const void* data, std::int64_t row_bytes) {
        return static_cast<const std::byte*>(data) + row * static_cast<std::size_t>(row_bytes);
      };
      ASSERT_EQ(std::memcmp(codes.data(), at(to.weight, to.weight_row_bytes()), codes.size()), 0) << to.name;
      ASSERT_EQ(std::memcmp(scales.data(), at(to.scales, to.scale_row_bytes()), scales.size() * 2), 0)
          << to.name;
      ASSERT_EQ(std::memcmp(biases.data(), at(to.biases, to.scale_row_bytes()), biases.size() * 2), 0)
          << to.name;
    }
  }

  TempFolder folder_;
};

TEST_F(Convert, HuggingFaceDense) {
  const TinySpec spec = hugging_face(tiny_dense());
  const fs::path from = source(spec);
  const ConversionReport report = convert_checkpoint(options_for(from, output()));
  EXPECT_TRUE(report.is_loadable);
  EXPECT_TRUE(report.has_head);
  EXPECT_EQ(report.shards, 2);
  expect_faithful(spec, from, output());
  EXPECT_FALSE(fs::exists(output().string() + ".converting"));
}

TEST_F(Convert, HuggingFaceMoeInEveryExpertLayout) {
  expect_faithful_in_layouts(hugging_face(tiny_moe()), {TinyExperts::kFused, TinyExperts::kTransposed,
                                                        TinyExperts::kPerExpert, TinyExperts::kStacked});
}

TEST_F(Convert, ExpertsAsWideAsTheModelInBothAxisOrders) {
  TinySpec spec = hugging_face(tiny_moe());
  spec.moe_intermediate = spec.hidden;
  expect_faithful_in_layouts(spec, {TinyExperts::kFused, TinyExperts::kTransposed});
}

TEST_F(Convert, MlxLayoutInBf16WithTheHeadBesideIt) {
  const TinySpec spec = in_bf16(tiny_dense());
  const fs::path from = source(spec);
  convert_checkpoint(options_for(from, output()));
  expect_faithful(spec, from, output());
}

TEST_F(Convert, TheHeadMayLieElsewhere) {
  TinySpec spec = in_bf16(tiny_dense());
  const fs::path from = source(spec);
  fs::rename(from / "mtp", folder_ / "head");
  ConversionOptions options = options_for(from, output());
  EXPECT_FALSE(convert_checkpoint(options).has_head);
  EXPECT_FALSE(fs::exists(output() / "mtp"));
  fs::remove_all(output());
  options.mtp_root = folder_ / "head";
  EXPECT_TRUE(convert_checkpoint(options).has_head);
  fs::rename(folder_ / "head", from / "mtp");
  expect_faithful(spec, from, output());
}

TEST_F(Convert, TiedModelsHaveNoOutputMatrix) {
  TinySpec spec = hugging_face(tiny_dense());
  spec.tied = true;
  const fs::path from = source(spec);
  convert_checkpoint(options_for(from, output()));
  expect_faithful(spec, from, output());
  EXPECT_EQ(Checkpoint::open(output()).find("lm_head.weight"), nullptr);
}

TEST_F(Convert, ShardsAreSplitAndIndexed) {
  const TinySpec spec = hugging_face(tiny_dense());
  const fs::path from = source(spec);
  ConversionOptions options = options_for(from, output());
  options.max_shard_bytes = 60'000;
  const ConversionReport report = convert_checkpoint(options);
  EXPECT_GT(report.shards, 3);
  expect_faithful(spec, from, output());
  const Json index = Json::parse(file_text(output() / "model.safetensors.index.json"));
  const Checkpoint result = Checkpoint::open(output());
  EXPECT_EQ(index["metadata"]["total_size"], result.tensor_bytes());
  EXPECT_EQ(index["weight_map"].size(), result.tensors().size());
  EXPECT_TRUE(result.notes().empty());
}

TEST_F(Convert, ThreadsAndShardsChangeNoByteOfATensor) {
  const fs::path from = source(hugging_face(tiny_moe()));
  ConversionOptions options = options_for(from, output());
  convert_checkpoint(options);
  options.output = folder_ / "again";
  options.threads = 1;
  convert_checkpoint(options);
  EXPECT_EQ(folder_files(output()), folder_files(options.output));
}

TEST_F(Convert, TheManifestNamesEveryFileWithItsHash) {
  const fs::path from = source(hugging_face(tiny_dense()), [](TinyFiles& files) {
    files.texts["tokenizer.json"] = "{}";
    files.texts["mererun.json"] = R"({"format": 1, "id": "other", "expects_retrieval": false,
      "target": {"repository": "org/model", "revision": "abc"}})";
  });
  ConversionOptions options = options_for(from, output());
  options.id = "my-model";
  convert_checkpoint(options);
  const ModelManifest manifest = *load_manifest(output());
  EXPECT_EQ(manifest.id, "my-model");
  EXPECT_EQ(manifest.target.repository, "org/model");
  EXPECT_EQ(manifest.expects_retrieval, false);
  std::map<std::string, std::string> files = folder_files(output());
  files.erase("mererun.json");
  ASSERT_EQ(manifest.files.size(), files.size());
  for (const ModelManifest::File& file : manifest.files) {
    EXPECT_EQ(file.bytes, files.at(file.path).size()) << file.path;
    EXPECT_EQ(file.sha256, sha256_hex(files.at(file.path))) << file.path;
  }
}

TEST_F(Convert, TheDraftHeadGetsACoarseOutputMatrix) {
  const TinySpec spec = hugging_face(tiny_dense());
  const fs::path from = source(spec, [](TinyFiles& files) {
    files.texts["mererun.json"] = R"({"format": 1, "draft_vocabulary": [[0, 99], [200, 219]]})";
  });
  const ConversionReport report = convert_checkpoint(options_for(from, output()));
  EXPECT_EQ(report.draft_rows, 120);
  const HostWeights loaded = load_host_weights(output(), manifest_options(output()));
  const LinearSource& coarse = loaded.head->draft_lm_head;
  ASSERT_EQ(coarse.out, 128);  // 120 rows, padded
  EXPECT_EQ(coarse.bits, 2);
  EXPECT_EQ(coarse.group, 64);
  // Its rows are those of the unquantised output matrix, in compact order, padding by rows from the start.
  const std::vector<float> full = dequantise(load_host_weights(from, manifest_options(from)).lm_head);
  const std::vector<float> rows = dequantise(coarse);
  const auto hidden = static_cast<std::size_t>(spec.hidden);
  for (const auto& [compact, token] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {99, 99}, {100, 200}, {119, 219}, {120, 0}, {127, 7}}) {
    const std::vector<float> row(full.begin() + static_cast<std::ptrdiff_t>(token * hidden),
                                 full.begin() + static_cast<std::ptrdiff_t>((token + 1) * hidden));
    std::vector<std::byte> codes(hidden / 4);
    std::vector<std::uint16_t> scales(hidden / 64), biases(hidden / 64);
    quantise_affine_rows(row, {2, 64}, {codes.data(), scales.data(), biases.data()});
    EXPECT_EQ(std::memcmp(codes.data(), static_cast<const std::byte*>(coarse.weight) + compact * codes.size(),
                          codes.size()),
              0)
        << compact;
  }
  EXPECT_EQ(rows.size(), 128 * hidden);
}

TEST_F(Convert, MixedRecipesAreWrittenIntoTheConfig) {
  TinySpec spec = hugging_face(tiny_dense());
  spec.layers = 8;
  const fs::path from = source(spec);
  ConversionOptions options = options_for(from, output());
  options.recipe.profile = "mixed-3-6";
  const ConversionReport report = convert_checkpoint(options);
  EXPECT_TRUE(report.is_loadable);
  ASSERT_EQ(report.precisions.size(), 2u);
  EXPECT_LT(report.precisions.at({6, 64}).relative(), report.precisions.at({3, 64}).relative());
  const Json quantization = Json::parse(file_text(output() / "config.json"))["quantization"];
  EXPECT_EQ(quantization["bits"], 3);
  EXPECT_EQ(quantization["language_model.lm_head"]["bits"], 6);
  EXPECT_EQ(quantization["language_model.model.layers.0.mlp.down_proj"]["bits"], 6);
  EXPECT_FALSE(quantization.contains("language_model.model.layers.1.mlp.down_proj"));
}

TEST_F(Convert, AWidthThatNoGroupDividesStaysBf16) {
  TinySpec spec = hugging_face(tiny_dense());
  spec.intermediate = 96;
  const fs::path from = source(spec);
  EXPECT_TRUE(convert_checkpoint(options_for(from, output())).is_loadable);
  const Checkpoint result = Checkpoint::open(output());
  EXPECT_EQ(result.find("layers.0.mlp.down_proj.weight")->dtype, DType::kBF16);
  EXPECT_EQ(result.find("layers.0.mlp.up_proj.weight")->dtype, DType::kU32);
}

TEST_F(Convert, VisionTensorsAreLeftOut) {
  const fs::path from = source(hugging_face(tiny_dense()), [](TinyFiles& files) {
    const std::vector<float> values(4, 1.0f);
    files.weights["model.safetensors"].push_back(bf16_tensor("model.visual.norm.weight", {4}, values));
    Json config = Json::parse(files.texts["config.json"]);
    config["vision_config"] = {{"depth", 1}};
    files.texts["config.json"] = config.dump();
  });
  const ConversionReport report = convert_checkpoint(options_for(from, output()));
  EXPECT_EQ(report.vision_tensors, 1);
  EXPECT_FALSE(Json::parse(file_text(output() / "config.json")).contains("vision_config"));
}

TEST_F(Convert, RefusesNanNamingTheElement) {
  const fs::path from = source(hugging_face(tiny_dense()), [](TinyFiles& files) {
    const std::uint16_t nan = 0x7fc1;
    std::memcpy(files.tensor("model.language_model.layers.1.mlp.up_proj.weight").data.data() + 2 * 300, &nan,
                2);
  });
  const Error error = error_of([&] { convert_checkpoint(options_for(from, output())); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_EQ(
      std::string(error.what()),
      "model.language_model.layers.1.mlp.up_proj.weight: expected finite numbers, got NaN or infinity at "
      "element 300 in model.safetensors");
  EXPECT_FALSE(fs::exists(output()));
}

TEST_F(Convert, RefusesAMissingShard) {
  const fs::path from = source(hugging_face(tiny_dense()));
  write_file(from / "model.safetensors.index.json",
             R"({"weight_map": {"model.language_model.norm.weight": "model-00002-of-00002.safetensors"}})");
  const Error error = error_of([&] { convert_checkpoint(options_for(from, output())); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("model-00002-of-00002.safetensors"));
}

TEST_F(Convert, RefusesAMissingTensor) {
  const fs::path from = source(hugging_face(tiny_dense()), [](TinyFiles& files) {
    files.erase("model.language_model.layers.2.mlp.up_proj.weight");
  });
  const Error error = error_of([&] { convert_checkpoint(options_for(from, output())); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), HasSubstr("layers.2.mlp.up_proj"));
}

TEST_F(Convert, RefusesAnOutputThatExists) {
  const fs::path from = source(hugging_face(tiny_dense()));
  fs::create_directory(output());
  const Error error = error_of([&] { convert_checkpoint(options_for(from, output())); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("expected a folder that does not exist yet, got one that exists"));
}

TEST_F(Convert, RefusesAQuantisedSource) {
  const fs::path from = source(tiny_dense());
  const Error error = error_of([&] { convert_checkpoint(options_for(from, output())); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("not quantised yet"));
}

TEST_F(Convert, RefusesAMissingSource) {
  const Error error = error_of([&] { convert_checkpoint(options_for(folder_ / "none", output())); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
}

}  // namespace

}  // namespace mererun::testing
