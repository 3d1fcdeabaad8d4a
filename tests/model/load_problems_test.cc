#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "model/flash_host_weights.h"
#include "model/host_weights.h"
#include "model/model.h"
#include "model/weights.h"
#include "tests/support/models.h"
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

/// Every way a tiny checkpoint may be written.
std::vector<TinySpec> every_layout() {
  std::vector<TinySpec> specs;
  for (const TinyHead head : {TinyHead::kShards, TinyHead::kSidecarFile, TinyHead::kSidecarFolder}) {
    for (const TinySpec& form : {tiny_dense(), in_bf16(tiny_dense()), hugging_face(tiny_dense()), tiny_moe(),
                                 hugging_face(tiny_moe())}) {
      TinySpec spec = form;
      spec.head = head;
      specs.push_back(spec);
      if (!spec.moe) continue;
      for (const TinyExperts experts :
           {TinyExperts::kFused, TinyExperts::kTransposed, TinyExperts::kPerExpert}) {
        if (experts == TinyExperts::kTransposed && spec.precision.bits != 0) continue;
        spec.expert_layout = spec.head_expert_layout = experts;
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

/// Layers 1 and 2 are as layer 0, experts between the first and the last as these.
bool is_like_another(const std::string& name) {
  static const std::regex kInner("layers\\.[12]\\.|experts\\.[1-6]\\.");
  return std::regex_search(name, kInner);
}

// Each tensor in turn: one problem, which is its absence, and not what follows from it; in the error behind
// the file or folder that lacks it.
TEST(LoadProblems, ADroppedTensorIsOneProblemOfItsOwnCheckpoint) {
  for (const TinySpec& spec : every_layout()) {
    const TinyFiles whole = make_tiny_checkpoint(spec);
    for (const auto& [file, tensors] : whole.weights) {
      const bool is_trunk = file == "model.safetensors";
      if (is_trunk && spec.head != TinyHead::kShards) continue;  // the same for each place of the head
      TempFolder temp;
      whole.write(temp.path());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::string& name = tensors[i].name;
        if (is_like_another(name)) continue;
        // Without an output matrix the embedding serves; a note says so.
        if (name.ends_with("lm_head.weight") && spec.precision.bits == 0) continue;
        std::vector<StoredTensor> rest = tensors;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
        write_file(temp / file, safetensors_image(rest));
        // Fused stacks are named with or without ".weight"; bare names of a head get their prefix.
        const std::size_t inner = name.find("layers.");
        const std::string plain =
            inner == name.npos ? name.substr(name.rfind('.', name.rfind('.') - 1) + 1) : name.substr(inner);
        const std::filesystem::path where = is_trunk ? temp.path() : temp / file;
        try {
          (void)load_host_weights(temp.path());
          ADD_FAILURE() << name;
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), AllOf(::testing::StartsWith(where.string() + ": expected a "),
                                          HasSubstr(", got 1 problem: "), HasSubstr(plain),
                                          ::testing::EndsWith("got no such tensor")));
        }
      }
    }
  }
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
              ElementsAre(AllOf(HasSubstr("layers.3.mlp.up_proj.scales: expected them beside"),
                                HasSubstr("U32"), HasSubstr("got no such tensor"))));
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

/// The committed tiny Flash-Next checkpoint, changed.
class FlashProblems : public ::testing::Test {
 protected:
  static std::filesystem::path source() { return testing::golden_dir() / "tiny-flash" / "mlx"; }

  FlashProblems() {
    std::filesystem::copy(
        source(), temp_.path(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  }

  nlohmann::json config() const {
    std::ifstream file(temp_.path() / "config.json");
    return nlohmann::json::parse(file);
  }
  void set_config(const nlohmann::json& config) const {
    std::ofstream(temp_.path() / "config.json") << config.dump();
  }

  TempFolder temp_;
};

TEST_F(FlashProblems, NoneInTheCheckpointItself) {
  EXPECT_THAT(list_load_problems(temp_.path()), SizeIs(0));
  const HostWeights weights = load_host_weights(temp_.path());
  EXPECT_THAT(weights.report.warnings, SizeIs(0));
  EXPECT_EQ(weights.report.trunk_norms, NormConvention::kZeroCentred);
  const HostNgramTable& table = weights.layers[1].flash->ngram->table;
  EXPECT_EQ(table.rows_per_shard, 4224);
  EXPECT_THAT(table.shards, SizeIs(4));
  EXPECT_EQ(weights.report.table_bytes, 4u * 4224 * (16 + 2 + 2));
}

TEST_F(FlashProblems, AHashSeedOfAnotherModelIsNamed) {
  nlohmann::json json = config();
  json["text_config"]["ngram_vocab_size_base"] = 1008;  // the same primes
  set_config(json);
  EXPECT_THAT(list_load_problems(temp_.path()), SizeIs(0));
  json["text_config"]["ngram_vocab_size_base"] = 1011;
  set_config(json);
  const auto problems = list_load_problems(temp_.path());
  EXPECT_THAT(problems, Contains(HasSubstr("ngram_heads_vocab_sizes: expected 1013 at index 0")));
}

TEST_F(FlashProblems, AMissingShardIsNamed) {
  nlohmann::json json = config();
  json["text_config"]["split_ngram_parts"] = 2;
  set_config(json);
  EXPECT_THAT(list_load_problems(temp_.path()), Contains(HasSubstr("ngram_embedding.shards.0")));
}

TEST_F(FlashProblems, AStatedPlacementIsChecked) {
  const auto state = [&](const char* text) {
    std::ofstream(temp_.path() / "MERERUN_PLE_STORE.json") << text;
    return list_load_problems(temp_.path());
  };
  EXPECT_THAT(state(R"({"files": [{"path": "model.safetensors", "bytes": 4466912}]})"), SizeIs(0));
  EXPECT_THAT(state(R"({"files": [{"path": "model.safetensors", "bytes": 5}, {"path": "b", "bytes": 7}]})"),
              ElementsAre(HasSubstr("\"model.safetensors\": expected 5 bytes"),
                          HasSubstr("\"b\": expected 7 bytes (MERERUN_PLE_STORE.json), got no such file")));
  EXPECT_THAT(state(R"({"files": [{"path": "a\u0000\nb", "bytes": 1}]})"),
              ElementsAre(HasSubstr(R"("a\x00\x0ab": expected 1 bytes)")));
  EXPECT_THROW(state(R"({"files": 3})"), Error);
}

TEST_F(FlashProblems, TheSpanOfTheHeadsNormIsASwitch) {
  LoadOptions options;
  EXPECT_EQ(load_host_weights(temp_.path(), options).head->flash->norm_span, HeadNormSpan::kFullWidth);
  options.head_norm_span = HeadNormSpan::kPerStream;
  EXPECT_EQ(load_host_weights(temp_.path(), options).head->flash->norm_span, HeadNormSpan::kPerStream);
  // Per stream, a stream's scale does not matter; over the full width it does.
  for (const HeadNormSpan span : {HeadNormSpan::kFullWidth, HeadNormSpan::kPerStream}) {
    options.head_norm_span = span;
    const auto model = Model::load(temp_.path(), options, make_cpu_ops({}), {64, 4});
    std::vector<float> row(static_cast<std::size_t>(model->config().residual_dim()), 4.0f);
    const auto draft = [&] {
      Buffer memory = model->ops().allocate(row.size() * sizeof(float));
      model->ops().upload(memory.data(), row.data(), row.size() * sizeof(float));
      KvCache cache(model->pools().head);
      const TokenId id = 3;
      const TensorView hidden = make_view(memory.data(), DType::kF32, 1, static_cast<int>(row.size()));
      return testing::hash_bits(
          testing::to_host(model->ops(), model->head()->forward(hidden, {&id, 1}, 0, 0, cache)));
    };
    for (std::size_t i = 0; i < row.size() / 4; ++i) row[i] = 1024.0f;
    const std::uint64_t loud = draft();
    for (std::size_t i = 0; i < row.size() / 4; ++i) row[i] = 2048.0f;
    EXPECT_EQ(draft() == loud, span == HeadNormSpan::kPerStream);
  }
}

TEST_F(FlashProblems, OtherNumbersOfStreamsAreRefused) {
  nlohmann::json json = config();
  json["text_config"]["hc_count"] = 2;
  set_config(json);
  try {
    (void)load_host_weights(temp_.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("hc_count: expected 4, got 2"));
  }
}

TEST_F(FlashProblems, EveryFieldAbsentOfAnotherTypeOrOutOfRangeIsAnErrorOrChangesNothing) {
  const nlohmann::json good = config();
  const std::vector<std::string> needed = {"hc_count",         "hc_lowrank",
                                           "indexer_n_heads",  "indexer_head_dim",
                                           "indexer_budget",   "indexer_compress_ratio",
                                           "ple_embed_dim",    "ngram_size",
                                           "heads_per_ngram",  "ngram_vocab_size_base",
                                           "split_ngram_parts"};
  for (const auto& [key, old] : good["text_config"].items()) {
    const bool is_needed = std::find(needed.begin(), needed.end(), key) != needed.end();
    for (const nlohmann::json& value :
         {nlohmann::json(), nlohmann::json("text"), nlohmann::json(-1), nlohmann::json(0), nlohmann::json(7),
          nlohmann::json(0.5), nlohmann::json(1 << 30), nlohmann::json(1e30), nlohmann::json::array({"x"})}) {
      nlohmann::json changed = good;
      changed["text_config"][key] = value;
      if (value.is_null()) changed["text_config"].erase(key);
      set_config(changed);
      try {
        (void)load_host_weights(temp_.path());
        EXPECT_FALSE(is_needed) << key << " " << value;
      } catch (const Error& error) {
        if (is_needed && !value.is_number_integer()) {
          EXPECT_THAT(error.what(), HasSubstr(key));
        }
      }
    }
  }
}

TEST_F(FlashProblems, AShardOfMoreRowsThanAnIndexCountsIsNamed) {
  nlohmann::json json = config();
  json["text_config"]["ngram_vocab_size_base"] = 1 << 30;
  set_config(json);
  EXPECT_THAT(list_load_problems(temp_.path()),
              Contains(HasSubstr("ngram_embedding: expected at most 2147483647 rows a shard, got 4294")));
}

TEST_F(FlashProblems, ATableFileThatIsCutAfterOpeningIsOneErrorAtLoad) {
  HostWeights weights = load_host_weights(temp_.path());
  HostNgramTable& table = weights.layers[1].flash->ngram->table;
  for (TableShard& shard : table.shards)
    for (TableArray& array : shard.arrays) array.path = temp_.path() / "gone.safetensors";
  const auto ops = make_reference_ops();
  try {
    (void)prepare_weights(*ops, weights);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("gone.safetensors"));
  }
}

}  // namespace
}  // namespace mererun
