#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::image_of_u8_tensors;
using ::testing::IsEmpty;
using testing::TempFolder;

namespace fs = std::filesystem;

std::vector<std::string> names(const Checkpoint& checkpoint) {
  std::vector<std::string> all;
  for (const TensorEntry& tensor : checkpoint.tensors()) all.push_back(tensor.name);
  return all;
}

/// Two shards, an index that describes them, and a config.
void write_sharded(const TempFolder& folder) {
  folder.write("config.json", R"({"model_type":"qwen3_5"})");
  folder.write("model-00001-of-00002.safetensors",
               image_of_u8_tensors({"model.language_model.embed_tokens.weight", "mtp.fc.weight"}));
  folder.write(
      "model-00002-of-00002.safetensors",
      image_of_u8_tensors({"model.language_model.norm.weight", "lm_head.weight", "model.visual.a.weight"}));
  folder.write("model.safetensors.index.json", R"({"metadata":{"total_size":20},"weight_map":{
      "model.language_model.embed_tokens.weight":"model-00001-of-00002.safetensors",
      "mtp.fc.weight":"model-00001-of-00002.safetensors",
      "model.language_model.norm.weight":"model-00002-of-00002.safetensors",
      "lm_head.weight":"model-00002-of-00002.safetensors"}})");
}

TEST(Checkpoint, UnitesShardsUnderCanonicalNames) {
  const TempFolder folder;
  write_sharded(folder);
  Checkpoint opened = Checkpoint::open(folder.path());
  const Checkpoint checkpoint = std::move(opened);  // what it hands out survives a move
  EXPECT_THAT(names(checkpoint), ElementsAre("embed_tokens.weight", "lm_head.weight", "model.visual.a.weight",
                                             "mtp.fc.weight", "norm.weight"));
  ASSERT_NE(checkpoint.find("norm.weight"), nullptr);
  EXPECT_EQ(checkpoint.find("norm.weight")->stored_name, "model.language_model.norm.weight");
  EXPECT_EQ(describe(*checkpoint.find("norm.weight")), "[4] U8 in model-00002-of-00002.safetensors");
  EXPECT_EQ(checkpoint.find("model.language_model.norm.weight"), nullptr);
  EXPECT_TRUE(checkpoint.find("model.visual.a.weight")->is_vision);
  EXPECT_FALSE(checkpoint.find("norm.weight")->is_vision);
  EXPECT_TRUE(checkpoint.holds_draft_head());
  EXPECT_EQ(checkpoint.tensor_bytes(), 20u);
  EXPECT_EQ(checkpoint.config().at("model_type"), "qwen3_5");
  EXPECT_EQ(checkpoint.path(), folder.path());
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
}

TEST(Checkpoint, OpensTheBundledModels) {
  for (const char* name : {"demo-dense-4bit", "demo-moe-4bit"}) {
    const fs::path folder = fs::path(MERERUN_SOURCE_DIR) / "models" / name;
    const Checkpoint checkpoint = Checkpoint::open(folder);
    for (const char* tensor :
         {"embed_tokens.weight", "norm.weight", "lm_head.scales", "layers.7.self_attn.q_proj.biases"}) {
      EXPECT_NE(checkpoint.find(tensor), nullptr) << name << " " << tensor;
    }
    EXPECT_THAT(checkpoint.notes(), IsEmpty());
    EXPECT_FALSE(checkpoint.holds_draft_head());
    const Checkpoint head = Checkpoint::open_sidecar(find_draft_head_files(folder).back());
    EXPECT_TRUE(head.holds_draft_head());
    EXPECT_NE(head.find("mtp.fc.weight"), nullptr);
    EXPECT_NE(head.find("mtp.layers.0.self_attn.q_norm.weight"), nullptr);
    for (const TensorEntry& tensor : checkpoint.tensors()) EXPECT_EQ(find_non_finite(tensor), std::nullopt);
  }
}

TEST(Checkpoint, LeavesSubfoldersHiddenFilesAndOtherFilesAlone) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("original/model.safetensors", "junk");
  folder.write("._model-00001-of-00002.safetensors", "junk");
  folder.write("model.safetensors.bak", "junk");
  EXPECT_EQ(Checkpoint::open(folder.path()).tensors().size(), 5u);
}

TEST(Checkpoint, ReadsThroughSymbolicLinks) {
  const TempFolder folder;
  folder.write("blobs/1", image_of_u8_tensors({"model.norm.weight"}));
  folder.write("blobs/2", "{}");
  fs::create_directories(folder / "snapshots/main");
  fs::create_symlink("../../blobs/1", folder / "snapshots/main/model.safetensors");
  fs::create_symlink("../../blobs/2", folder / "snapshots/main/config.json");
  fs::create_directory_symlink("snapshots/main", folder / "current");
  EXPECT_THAT(names(Checkpoint::open(folder / "current")), ElementsAre("norm.weight"));
  fs::remove(folder / "blobs/1");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder / "current"); }).code(), ErrorCode::kNotFound);
}

TEST(Checkpoint, MissingPartsAreNotFoundByName) {
  const TempFolder folder;
  const auto refuse = [&](const fs::path& path, const std::string& what) {
    const Error error = error_of([&] { Checkpoint::open(path); });
    EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(what));
  };
  refuse(folder / "absent", "absent: expected a folder, got nothing");
  refuse(folder.write("file", "x"), "file: expected a folder, got another kind of file");
  refuse(folder.path(), "expected at least one *.safetensors file, got none");
  folder.write("mtp.safetensors", image_of_u8_tensors({"fc.weight"}));  // a head alone is no checkpoint
  refuse(folder.path(), "expected at least one *.safetensors file, got none");
  folder.write("model.safetensors", image_of_u8_tensors({"model.norm.weight"}));
  refuse(folder.path(), "config.json: expected a readable file");
  folder.write("config.json", "{}");
  EXPECT_NO_THROW(Checkpoint::open(folder.path()));
}

TEST(Checkpoint, RefusesAFolderNamedLikeAShard) {
  const TempFolder folder;
  write_sharded(folder);
  fs::create_directory(folder / "extra.safetensors");
  EXPECT_EQ(error_of([&] { Checkpoint::open(folder.path()); }).code(), ErrorCode::kIo);
}

TEST(Checkpoint, RefusesOneTensorInTwoFiles) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("extra.safetensors", image_of_u8_tensors({"lm_head.weight"}));
  const Error error = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("one tensor \"lm_head.weight\""), HasSubstr("extra.safetensors"),
                                  HasSubstr("model-00002-of-00002.safetensors")));
}

TEST(Checkpoint, RefusesTwoSpellingsOfOneTensor) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors",
               image_of_u8_tensors({"model.norm.weight", "language_model.model.norm.weight"}));
  EXPECT_THAT(error_of([&] { Checkpoint::open(folder.path()); }).what(),
              AllOf(HasSubstr("\"model.norm.weight\""), HasSubstr("\"language_model.model.norm.weight\"")));
}

TEST(Checkpoint, AShardThatTheIndexNamesMustExist) {
  const TempFolder folder;
  write_sharded(folder);
  fs::remove(folder / "model-00002-of-00002.safetensors");
  const Error error = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("model.safetensors.index.json"),
                    HasSubstr("\"model-00002-of-00002.safetensors\""), HasSubstr("no such file")));
}

TEST(Checkpoint, AnExtraShardThatTheIndexOmitsIsUnited) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("ngram.safetensors", image_of_u8_tensors({"ngram.weight"}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_NE(checkpoint.find("ngram.weight"), nullptr);
  EXPECT_THAT(checkpoint.notes(), IsEmpty());
}

TEST(Checkpoint, ATensorThatOnlyTheIndexKnowsIsRefused) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"model.layers.0.a":"model-00001-of-00002.safetensors"}})");
  const Error error = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(), HasSubstr(R"(tensor "model.layers.0.a" in "model-00001-of-00002.safetensors")"));
}

TEST(Checkpoint, ATensorInAnotherFileThanTheIndexSaysIsANote) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("model.safetensors.index.json", R"({"weight_map":{
      "lm_head.weight":"model-00001-of-00002.safetensors",
      "language_model.model.norm.weight":"model-00002-of-00002.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.notes().size(), 1u);
  EXPECT_THAT(checkpoint.notes()[0], HasSubstr("2 tensors are in another file"));
}

TEST(Checkpoint, RefusesIndexesThatAreNone) {
  const std::pair<const char*, const char*> bad[] = {
      {"{", "expected JSON"},
      {"{}", "weight_map: expected an object, got nothing"},
      {R"({"weight_map":[]})", "weight_map: expected an object"},
      {R"({"weight_map":{"a":1}})",
       R"(weight_map["a"]: expected the name of a file inside the folder, got number)"},
      {R"({"weight_map":{"a":""}})", "inside the folder"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "inside the folder"},
      {R"({"weight_map":{"a":"x/../../y"}})", "inside the folder"},
      {R"({"weight_map":{"a":"m\u0000.safetensors"}})", "inside the folder"},
      {R"({"weight_map":{"a":"f","a":"f"}})", "distinct keys"},
  };
  for (const auto& [text, what] : bad) {
    const TempFolder folder;
    write_sharded(folder);
    folder.write("model.safetensors.index.json", text);
    const Error error = error_of([&] { Checkpoint::open(folder.path()); });
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << text;
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr(what))) << text;
  }
}

TEST(Checkpoint, AnIndexMayNameDraftHeadFilesAndSubfolders) {
  const TempFolder folder;
  write_sharded(folder);
  folder.write("mtp.safetensors", image_of_u8_tensors({"norm.weight", "fc.weight"}));
  folder.write("more/x.safetensors", image_of_u8_tensors({"x.weight"}));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"norm.weight":"mtp.safetensors",
      "fc.weight":"mtp.safetensors","x.weight":"more/x.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.tensors().size(), 5u);
  EXPECT_EQ(checkpoint.find("norm.weight")->stored_name, "model.language_model.norm.weight");
}

TEST(Checkpoint, HolesBecomeNotes) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write(
      "model.safetensors",
      testing::safetensors_image(R"({"model.norm.weight":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                 std::string(8, 'x')));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.notes().size(), 1u);
  EXPECT_THAT(checkpoint.notes()[0], HasSubstr("model.safetensors: 4 data bytes belong to no tensor"));
}

TEST(Checkpoint, FaultsOfAHeaderNameTheFile) {
  const TempFolder folder;
  write_sharded(folder);
  fs::resize_file(folder / "model-00002-of-00002.safetensors",
                  fs::file_size(folder / "model-00002-of-00002.safetensors") - 1);
  const Error error = error_of([&] { Checkpoint::open(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("model-00002-of-00002.safetensors: tensor \"model.visual.a.weight\""),
                    HasSubstr("file truncated?")));
}

}  // namespace
}  // namespace mererun
