#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/host_weights.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace mererun::testing;
namespace fs = std::filesystem;

/// A model whose head can be told by its seed: only the head's tensors of `files` are replaced.
TinySpec with_head(TinyHead head, std::uint64_t seed = 1) {
  TinySpec spec = in_bf16(tiny_dense());
  spec.head = head;
  spec.seed = seed;
  return spec;
}

void write_head(const fs::path& folder, TinyHead place, std::uint64_t seed) {
  TinyFiles files = make_tiny_checkpoint(with_head(place, seed));
  files.weights.erase("model.safetensors");
  files.texts.clear();
  files.write(folder);
}

/// Which seed's head was loaded.
std::vector<float> head_sample(const HostWeights& weights) { return dequantise(weights.head->fc); }
std::vector<float> sample_of(std::uint64_t seed) {
  TempFolder temp;
  return head_sample(
      load_host_weights(write_tiny_checkpoint(temp.path(), with_head(TinyHead::kShards, seed))));
}

TEST(DraftHead, SearchOrder) {
  TempFolder temp;
  const fs::path model = write_tiny_checkpoint(temp / "m", with_head(TinyHead::kNone));
  const fs::path companion = temp / "companion";
  write_head(companion / "x", TinyHead::kSidecarFolder, 2);
  fs::rename(companion / "x/mtp/model.safetensors", companion / "model.safetensors");
  LoadOptions options;
  options.companions = {companion};

  HostWeights weights = load_host_weights(model, options);
  EXPECT_EQ(weights.report.head_place, HeadPlace::kCompanion);
  EXPECT_EQ(head_sample(weights), sample_of(2));

  write_head(model, TinyHead::kSidecarFolder, 3);
  weights = load_host_weights(model, options);
  EXPECT_EQ(weights.report.head_place, HeadPlace::kSidecarFolder);
  EXPECT_EQ(head_sample(weights), sample_of(3));

  write_head(model, TinyHead::kSidecarFile, 5);
  fs::rename(model / "mtp.safetensors", model / "model-mtp.safetensors");
  weights = load_host_weights(model, options);
  EXPECT_EQ(weights.report.head_place, HeadPlace::kSidecarFile);
  EXPECT_EQ(head_sample(weights), sample_of(5));

  write_head(model, TinyHead::kSidecarFile, 4);
  weights = load_host_weights(model, options);
  EXPECT_EQ(weights.report.head_path, model / "mtp.safetensors");
  EXPECT_EQ(head_sample(weights), sample_of(4));

  write_tiny_checkpoint(model, with_head(TinyHead::kShards));
  weights = load_host_weights(model, options);
  EXPECT_EQ(weights.report.head_place, HeadPlace::kTargetShards);
  EXPECT_EQ(head_sample(weights), sample_of(1));

  options.mtp_root = write_tiny_checkpoint(temp / "root", hugging_face(with_head(TinyHead::kShards, 6)));
  weights = load_host_weights(model, options);  // a whole checkpoint may serve as the head's source
  EXPECT_EQ(weights.report.head_place, HeadPlace::kMtpRoot);
  EXPECT_EQ(head_sample(weights), sample_of(6));
  EXPECT_THAT(weights.report.notes,
              ElementsAre(HasSubstr("the mtp.* tensors beside the trunk are not used")));
  options.mtp_root = temp / "empty";
  fs::create_directories(options.mtp_root);
  EXPECT_THROW((void)load_host_weights(model, options), Error);
}

// Whatever a named folder holds beside it: a trunk, a sidecar of another kind, nothing.
TEST(DraftHead, OfANamedRootMayLieInItsMtpFolder) {
  for (const TinyHead place : {TinyHead::kShards, TinyHead::kSidecarFile, TinyHead::kSidecarFolder}) {
    TempFolder temp;
    LoadOptions by_root, by_companion;
    by_root.mtp_root = write_tiny_checkpoint(temp / "root", with_head(place, 7));
    by_companion.companions = {by_root.mtp_root};
    const fs::path model = write_tiny_checkpoint(temp / "m", with_head(TinyHead::kNone));
    for (const LoadOptions& options : {by_root, by_companion})
      EXPECT_EQ(head_sample(load_host_weights(model, options)), sample_of(7));
    write_tiny_checkpoint(model, with_head(TinyHead::kShards));
    EXPECT_EQ(head_sample(load_host_weights(model, by_root)), sample_of(7));
  }
}

TEST(DraftHead, ARootWithoutAHeadIsNotFound) {
  TempFolder temp;
  const fs::path model = write_tiny_checkpoint(temp / "m", with_head(TinyHead::kShards));
  LoadOptions options;
  options.mtp_root = write_tiny_checkpoint(temp / "root", with_head(TinyHead::kNone));
  try {
    (void)load_host_weights(model, options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
  }
}

// B066: a config that promises a head beside files without one loads without, and says so.
TEST(DraftHead, AbsentIsANoteNotAnError) {
  TempFolder temp;
  const HostWeights weights =
      load_host_weights(write_tiny_checkpoint(temp.path(), with_head(TinyHead::kNone)));
  EXPECT_FALSE(weights.head.has_value());
  EXPECT_EQ(weights.report.head_place, HeadPlace::kNone);
  EXPECT_EQ(weights.report.head_norms, std::nullopt);
  EXPECT_THAT(weights.report.notes, ElementsAre(HasSubstr("mtp_num_hidden_layers")));
}

TEST(DraftHead, ThatIsRequiredIsMissedBeforeAnythingIsBound) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(with_head(TinyHead::kNone));
  files.erase("language_model.model.norm.weight");
  files.write(temp.path());
  LoadOptions options;
  options.head = LoadOptions::Head::kRequire;
  try {
    (void)load_host_weights(temp.path(), options);
    FAIL() << "a model without a head was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_EQ(error.what(), temp.path().string() + ": expected a draft head (mtp.* tensors), got none");
    EXPECT_THAT(error.hint(), HasSubstr("--mtp-root"));
  }
  TempFolder whole;
  write_tiny_checkpoint(whole.path(), with_head(TinyHead::kShards));
  EXPECT_TRUE(load_host_weights(whole.path(), options).head.has_value());
}

TEST(DraftHead, IsSkippedWhenNotAskedFor) {
  TempFolder temp;
  LoadOptions options;
  options.head = LoadOptions::Head::kSkip;
  const HostWeights weights =
      load_host_weights(write_tiny_checkpoint(temp.path(), with_head(TinyHead::kShards)), options);
  EXPECT_FALSE(weights.head.has_value());
  EXPECT_THAT(weights.report.notes, ElementsAre(HasSubstr("not asked for")));
}

// B066, B067: a head that lacks or misnames one tensor is an error, not a head with random parts.
TEST(DraftHead, IncompleteIsAnErrorThatListsEverything) {
  for (const TinyHead place : {TinyHead::kShards, TinyHead::kSidecarFile, TinyHead::kSidecarFolder}) {
    TempFolder temp;
    const TinyFiles files = make_tiny_checkpoint(with_head(place));
    const std::string prefix = place == TinyHead::kShards ? "language_model.mtp." : "";
    TinyFiles lacking = files;
    lacking.erase(prefix + "layers.0.self_attn.k_norm.weight");
    lacking.write(temp / "lacking");
    std::string own;
    if (place == TinyHead::kSidecarFile) own = (temp / "lacking/mtp.safetensors").string() + ": ";
    if (place == TinyHead::kSidecarFolder) own = (temp / "lacking/mtp/model.safetensors").string() + ": ";
    EXPECT_THAT(list_load_problems(temp / "lacking"),
                ElementsAre(own + "mtp.layers.0.self_attn.k_norm.weight: expected [32], got no such tensor"));
    TinyFiles renamed = files;
    renamed.rename(prefix + "fc.weight", prefix + "fcc.weight");
    renamed.write(temp / "renamed");
    EXPECT_THAT(list_load_problems(temp / "renamed"),
                ElementsAre(HasSubstr("mtp.fc.weight: expected [128, 256]"),
                            AllOf(HasSubstr("fcc.weight"), HasSubstr("expected no tensor of this name"))));
  }
}

// B068: the head's precision is its own, in either direction.
TEST(DraftHead, MixedPrecision) {
  for (const TinySpec& base : {tiny_dense(), tiny_moe()}) {
    TempFolder temp;
    TinySpec bf16_head = base;
    bf16_head.head_precision = TinyPrecision{0, 64};
    const HostWeights a = load_host_weights(write_tiny_checkpoint(temp / "a", bf16_head));
    EXPECT_EQ(a.head->fc.format, WeightFormat::kDense);
    EXPECT_EQ(a.embed.bits, 4);
    TinySpec q4_head = in_bf16(base);
    q4_head.head_precision = TinyPrecision{4, 32};
    const HostWeights b = load_host_weights(write_tiny_checkpoint(temp / "b", q4_head));
    EXPECT_EQ(b.head->fc.bits, 4);
    EXPECT_EQ(b.head->fc.group, 32);
    EXPECT_EQ(b.embed.format, WeightFormat::kDense);
    EXPECT_THAT(b.report.notes, IsEmpty());
  }
}

TEST(DraftHead, EntriesOfTheConfigHoldForAHeadInTheShards) {
  TempFolder temp;
  TinySpec spec = tiny_dense();
  spec.head = TinyHead::kShards;
  spec.modules["mtp.fc"] = {8, 64};
  EXPECT_EQ(load_host_weights(write_tiny_checkpoint(temp / "a", spec)).head->fc.bits, 8);
  TinyFiles files = make_tiny_checkpoint(spec);
  nlohmann::json config = nlohmann::json::parse(files.texts["config.json"]);
  for (const char* key : {"quantization", "quantization_config"}) {
    config[key]["language_model.mtp.fc"] = {{"bits", 6}};
  }
  files.texts["config.json"] = config.dump();
  files.write(temp / "b");
  EXPECT_THAT(list_load_problems(temp / "b"),
              ElementsAre(AllOf(HasSubstr("6-bit g64"), HasSubstr("8-bit g64"))));
}

TEST(DraftHead, NormsAreMeasuredApartFromTheTrunk) {
  TempFolder temp;
  const HostWeights final_head = load_host_weights(write_tiny_checkpoint(temp / "a", tiny_dense()));
  TinySpec spec = tiny_dense();
  spec.head_norms = NormConvention::kZeroCentred;
  const HostWeights zero_centred = load_host_weights(write_tiny_checkpoint(temp / "b", spec));
  EXPECT_EQ(final_head.report.head_norms, NormConvention::kFinal);
  EXPECT_EQ(zero_centred.report.head_norms, NormConvention::kZeroCentred);
  EXPECT_EQ(zero_centred.report.trunk_norms, NormConvention::kFinal);
  EXPECT_EQ(zero_centred.head->norm, final_head.head->norm);
  EXPECT_EQ(zero_centred.head->layer.input_norm, final_head.head->layer.input_norm);
  EXPECT_EQ(zero_centred.final_norm, final_head.final_norm);
  EXPECT_THAT(zero_centred.report.warnings, IsEmpty());
}

// B065: half of the head's norms minus one. Each follows its own data and a warning names it.
TEST(DraftHead, MixedNormConventionsFollowTheData) {
  TempFolder temp;
  const HostWeights expected = load_host_weights(write_tiny_checkpoint(temp / "a", in_bf16(tiny_dense())));
  TinySpec raw = in_bf16(tiny_dense());
  raw.head_norms = NormConvention::kZeroCentred;
  TinyFiles files = make_tiny_checkpoint(in_bf16(tiny_dense()));
  TinyFiles zero_centred = make_tiny_checkpoint(raw);
  for (const char* name : {"norm.weight", "pre_fc_norm_hidden.weight", "layers.0.input_layernorm.weight"}) {
    files.tensor(name).data = zero_centred.tensor(name).data;
  }
  files.write(temp / "b");
  const HostWeights weights = load_host_weights(temp / "b");
  EXPECT_EQ(weights.head->norm, expected.head->norm);
  EXPECT_EQ(weights.head->pre_fc_norm_hidden, expected.head->pre_fc_norm_hidden);
  EXPECT_EQ(weights.head->pre_fc_norm_embedding, expected.head->pre_fc_norm_embedding);
  EXPECT_EQ(weights.head->layer.input_norm, expected.head->layer.input_norm);
  EXPECT_EQ(weights.head->layer.post_norm, expected.head->layer.post_norm);
  EXPECT_EQ(std::get<HostAttention>(weights.head->layer.mixer).q_norm,
            std::get<HostAttention>(expected.head->layer.mixer).q_norm);
  EXPECT_THAT(weights.report.warnings, Not(IsEmpty()));
  EXPECT_THAT(weights.report.warnings, Each(HasSubstr("by its data")));
}

TEST(DraftHead, AStatedConventionSettlesEverything) {
  TempFolder temp;
  LoadOptions options;
  options.mtp_norm_convention = NormConvention::kZeroCentred;  // against the data: final weights get one more
  const HostWeights stated = load_host_weights(write_tiny_checkpoint(temp / "a", tiny_dense()), options);
  const HostWeights measured = load_host_weights(temp / "a");
  EXPECT_EQ(stated.head->norm[0], measured.head->norm[0] + 1.0f);
  EXPECT_EQ(stated.report.head_norms, NormConvention::kZeroCentred);
  EXPECT_THAT(stated.report.warnings, IsEmpty());
}

// `mtp.*` tensors in the shards change nothing about the trunk.
TEST(DraftHead, PresenceLeavesTheTrunkUnchanged) {
  for (const bool hf : {false, true}) {
    TempFolder temp;
    TinySpec with = tiny_dense();
    with.head = TinyHead::kShards;
    TinySpec without = with;
    without.head = TinyHead::kNone;
    const HostWeights a =
        load_host_weights(write_tiny_checkpoint(temp / "a", hf ? hugging_face(with) : with));
    const HostWeights b =
        load_host_weights(write_tiny_checkpoint(temp / "b", hf ? hugging_face(without) : without));
    EXPECT_EQ(a.final_norm, b.final_norm);
    for (std::size_t i = 0; i < a.layers.size(); ++i)
      EXPECT_EQ(a.layers[i].input_norm, b.layers[i].input_norm);
    EXPECT_EQ(dequantise(a.lm_head), dequantise(b.lm_head));
  }
}

// B074: a trimmed draft vocabulary is stated by ranges; the target keeps its full matrix.
TEST(DraftHead, CompactVocabularyComesFromItsStatement) {
  TempFolder temp;
  write_tiny_checkpoint(temp.path(), tiny_dense());
  LoadOptions options;
  options.draft_vocabulary = std::vector<TokenRange>{{0, 127}};
  const HostWeights weights = load_host_weights(temp.path(), options);
  ASSERT_TRUE(weights.head->vocabulary.has_value());
  EXPECT_EQ(weights.head->vocabulary->rows(), 128);
  EXPECT_EQ(weights.lm_head.out, 256);
  options.draft_vocabulary = std::vector<TokenRange>{{0, 256}};
  EXPECT_THROW((void)load_host_weights(temp.path(), options), Error);
}

TEST(DraftHead, ShortlistMatchesTheCompactVocabulary) {
  TempFolder temp;
  TinyFiles files = make_tiny_checkpoint(tiny_dense());
  const std::vector<float> values(96 * 128, 0.5f);
  const auto with_shortlist = [&](int rows, int bits, int group, const fs::path& folder) {
    TinyFiles changed = files;
    for (StoredTensor& part :
         quantise_affine("draft_lm_head", {rows}, 128,
                         std::span(values).first(static_cast<std::size_t>(rows) * 128), bits, group)) {
      changed.weights["mtp/model.safetensors"].push_back(std::move(part));
    }
    changed.write(folder);
    return folder;
  };
  LoadOptions options;
  options.draft_vocabulary = std::vector<TokenRange>{{0, 69}, {250, 255}};  // 76 rows, padded to 96
  const HostWeights weights = load_host_weights(with_shortlist(96, 2, 64, temp / "a"), options);
  EXPECT_EQ(weights.head->draft_lm_head.out, 96);
  EXPECT_EQ(weights.head->draft_lm_head.bits, 2);
  EXPECT_THAT(list_load_problems(with_shortlist(76, 2, 64, temp / "b"), options), SizeIs(1));
  EXPECT_THAT(list_load_problems(with_shortlist(96, 4, 64, temp / "c"), options),
              Contains(HasSubstr("expected 2-bit g64, got 4-bit g64")));
  EXPECT_THAT(list_load_problems(with_shortlist(96, 2, 32, temp / "d"), options),
              Contains(HasSubstr("got 2-bit g32")));
  EXPECT_THAT(list_load_problems(with_shortlist(96, 2, 64, temp / "e")),
              ElementsAre(HasSubstr("expected a compact draft vocabulary")));
}

}  // namespace
}  // namespace mererun
