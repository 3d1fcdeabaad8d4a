#include "checkpoint/draft_head_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::image_of_u8_tensors;
using testing::TempFolder;

namespace fs = std::filesystem;

constexpr const char* kKinds[] = {"mtp-root", "target-shards", "sidecar-file", "mtp-folder"};

/// "kind:file+file" of every place, files relative to the folder.
std::vector<std::string> places(const TempFolder& folder, std::string_view target,
                                const std::optional<fs::path>& root = {}) {
  std::vector<std::string> texts;
  for (const DraftHeadPlace& place : find_draft_head_files(folder / target, root)) {
    std::vector<std::string> files;
    for (const fs::path& file : place.files) files.push_back(file.lexically_relative(folder.path()).string());
    texts.push_back(fmt::format("{}:{}", kKinds[static_cast<int>(place.kind)], fmt::join(files, "+")));
  }
  return texts;
}

std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> all;
  for (const TensorEntry& tensor : checkpoint.tensors()) all.push_back(tensor.name);
  return all;
}

TEST(DraftHeadFiles, PlacesComeInSearchOrder) {
  const TempFolder folder;
  folder.write("t/model.safetensors", "");
  EXPECT_THAT(places(folder, "t"), ElementsAre("target-shards:"));
  folder.write("t/mtp/weights.safetensors", "");
  folder.write("t/model-mtp.safetensors", "");
  folder.write("t/mtp.safetensors", "");
  EXPECT_THAT(places(folder, "t"),
              ElementsAre("target-shards:", "sidecar-file:t/mtp.safetensors",
                          "sidecar-file:t/model-mtp.safetensors", "mtp-folder:t/mtp/weights.safetensors"));
  folder.write("h/head.safetensors", "");
  EXPECT_THAT(places(folder, "t", folder / "h").front(), "mtp-root:h/head.safetensors");
  EXPECT_EQ(places(folder, "t", folder / "h").size(), 5u);
}

TEST(DraftHeadFiles, AnMtpFolderMayHoldShardsOrOneOfTwoSpellings) {
  const TempFolder folder;
  folder.write("t/mtp/model-00002-of-00002.safetensors", "");
  folder.write("t/mtp/model-00001-of-00002.safetensors", "");
  EXPECT_THAT(places(folder, "t").back(),
              "mtp-folder:t/mtp/model-00001-of-00002.safetensors+t/mtp/model-00002-of-00002.safetensors");
  const TempFolder both;
  both.write("t/mtp/model.safetensors", "");
  both.write("t/mtp/weights.safetensors", "");
  both.write("t/mtp/draft_lm_head.safetensors", "");
  EXPECT_THAT(places(both, "t").back(), "mtp-folder:t/mtp/draft_lm_head.safetensors+t/mtp/model.safetensors");
}

TEST(DraftHeadFiles, ARootMayBeAFileAFolderOrAFolderWithAnMtpFolder) {
  const TempFolder folder;
  folder.write("a/x.safetensors", "");
  folder.write("b/model.safetensors", "");
  folder.write("b/mtp.safetensors", "");
  folder.write("b/mtp/model.safetensors", "");
  folder.write("c/mtp/model.safetensors", "");
  EXPECT_THAT(places(folder, "t", folder / "a/x.safetensors"),
              ElementsAre("mtp-root:a/x.safetensors", "target-shards:"));
  EXPECT_THAT(places(folder, "t", folder / "b"),
              ElementsAre("mtp-root:b/model.safetensors", "mtp-root:b/mtp.safetensors",
                          "mtp-root:b/mtp/model.safetensors", "target-shards:"));
  EXPECT_THAT(places(folder, "t", folder / "c"),
              ElementsAre("mtp-root:c/mtp/model.safetensors", "target-shards:"));
}

TEST(DraftHeadFiles, ARootWithoutWeightsIsNotFound) {
  const TempFolder folder;
  fs::create_directory(folder / "empty");
  for (const char* name : {"empty", "absent"}) {
    const Error error = error_of([&] { find_draft_head_files(folder.path(), folder / name); });
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

TEST(DraftHeadFiles, SidecarsAreNotUnitedWithTheTrunk) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", image_of_u8_tensors({"model.norm.weight", "model.layers.0.a.weight"}));
  const std::string head = image_of_u8_tensors({"norm.weight", "layers.0.a.weight", "fc.weight"});
  folder.write("mtp.safetensors", head);
  folder.write("model-mtp.safetensors", head);
  folder.write("mtp/model.safetensors", head);
  const Checkpoint trunk = Checkpoint::open(folder.path());
  EXPECT_THAT(names(trunk), ElementsAre("layers.0.a.weight", "norm.weight"));
  EXPECT_FALSE(trunk.holds_draft_head());
}

TEST(DraftHeadFiles, BareAndPrefixedNamesBecomeTheSame) {
  const std::vector<std::vector<std::string>> spellings = {
      {"fc.weight", "layers.0.a.weight", "norm.weight", "draft_lm_head.weight"},
      {"mtp.fc.weight", "mtp.layers.0.a.weight", "mtp.norm.weight", "draft_lm_head.weight"},
      {"language_model.mtp.fc.weight", "language_model.mtp.layers.0.a.weight",
       "language_model.mtp.norm.weight", "mtp.draft_lm_head.weight"}};
  for (const auto& spelling : spellings) {
    for (const char* file : {"mtp.safetensors", "mtp/weights.safetensors"}) {
      const TempFolder folder;
      folder.write(file, image_of_u8_tensors(spelling));
      const Checkpoint head = Checkpoint::open_sidecar(find_draft_head_files(folder.path()).back());
      EXPECT_THAT(names(head), ElementsAre("draft_lm_head.weight", "mtp.fc.weight", "mtp.layers.0.a.weight",
                                           "mtp.norm.weight"));
      EXPECT_TRUE(head.holds_draft_head());
      EXPECT_FALSE(head.has_config());
      EXPECT_EQ(error_of([&] { (void)head.config(); }).code(), ErrorCode::kNotFound);
    }
  }
}

TEST(DraftHeadFiles, AnIncompleteHeadIsStillAHead) {
  const TempFolder folder;
  folder.write("mtp/model.safetensors", image_of_u8_tensors({"layers.0.a.weight"}));
  EXPECT_THAT(names(Checkpoint::open_sidecar(find_draft_head_files(folder.path()).back())),
              ElementsAre("mtp.layers.0.a.weight"));
}

TEST(DraftHeadFiles, ACheckpointAsRootKeepsItsTrunkBesideTheHead) {
  const TempFolder folder;
  folder.write("hf/config.json", "{}");
  folder.write("hf/model-00002-of-00002.safetensors",
               image_of_u8_tensors({"mtp.norm.weight", "model.norm.weight"}));
  // The other shard was not fetched; its trunk tensors are not asked for.
  folder.write("hf/model.safetensors.index.json", R"({"weight_map":{
      "model.embed_tokens.weight":"model-00001-of-00002.safetensors",
      "mtp.norm.weight":"model-00002-of-00002.safetensors"}})");
  const Checkpoint head = Checkpoint::open_sidecar(find_draft_head_files("t", folder / "hf").front());
  EXPECT_THAT(names(head), ElementsAre("mtp.norm.weight", "norm.weight"));
  EXPECT_TRUE(head.has_config());

  const TempFolder plain;  // a checkpoint without a head
  plain.write("model.safetensors", image_of_u8_tensors({"model.norm.weight", "model.layers.0.a.weight"}));
  EXPECT_FALSE(Checkpoint::open_sidecar(find_draft_head_files("t", plain.path()).front()).holds_draft_head());

  const TempFolder drafter;  // a folder of its own, names bare
  drafter.write("model.safetensors", image_of_u8_tensors({"norm.weight", "pre_fc_norm_hidden.weight"}));
  EXPECT_THAT(names(Checkpoint::open_sidecar(find_draft_head_files("t", drafter.path()).front())),
              ElementsAre("mtp.norm.weight", "mtp.pre_fc_norm_hidden.weight"));
}

TEST(DraftHeadFiles, AShardOfTheHeadThatItsIndexNamesMustExist) {
  const TempFolder folder;
  folder.write("mtp/model-00001-of-00002.safetensors", image_of_u8_tensors({"fc.weight"}));
  folder.write("mtp/model.safetensors.index.json", R"({"weight_map":{
      "fc.weight":"model-00001-of-00002.safetensors","norm.weight":"model-00002-of-00002.safetensors"}})");
  const Error error =
      error_of([&] { Checkpoint::open_sidecar(find_draft_head_files(folder.path()).back()); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("norm.weight")));
}

}  // namespace
}  // namespace mererun
