#include "model/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempFolder;
namespace fs = std::filesystem;

/// A folder that looks complete, with the geometry that is asked for. Nothing opens its weights here.
void make_model(const fs::path& folder, int layers = 4, int hidden = 128) {
  static const std::string tiny =
      testing::make_tiny_checkpoint(testing::tiny_dense()).texts.at("config.json");
  nlohmann::json config = nlohmann::json::parse(tiny);
  config["text_config"]["num_hidden_layers"] = layers;
  config["text_config"]["hidden_size"] = hidden;
  testing::write_file(folder / "config.json", config.dump());
  testing::write_file(folder / "tokenizer.json", "{}");
  testing::write_file(folder / "model.safetensors", "unread");
}

void make_demo(const fs::path& folder) { make_model(folder, 8, 512); }

Error error_of(const ModelRequest& request, const ModelSurroundings& surroundings) {
  try {
    (void)resolve_model(request, surroundings);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown for " << request.model << " " << request.root;
  return Error(ErrorCode::kInternal, "");
}

TEST(Identity, StoresInOrder) {
  EXPECT_THAT(store_folders({.models = "/a:/b::/a", .data_home = "/d", .home = "/h", .bundled = "/p/models"}),
              ElementsAre("/a", "/b", "/d/mere.run/models", "/p/models"));
  EXPECT_THAT(store_folders({.models = "", .data_home = "", .home = "/h", .bundled = ""}),
              ElementsAre("/h/.local/share/mere.run/models"));
  EXPECT_THAT(store_folders({}), IsEmpty());
}

TEST(Identity, ResolutionOrder) {
  TempFolder temp;
  const ModelSurroundings around{.models = (temp / "one").string() + ":" + (temp / "two").string(),
                                 .data_home = (temp / "data").string(),
                                 .home = "",
                                 .bundled = temp / "bundled"};
  const ModelRequest request{.model = "demo-dense-4bit", .root = ""};
  make_demo(temp / "bundled/demo-dense-4bit");
  EXPECT_EQ(resolve_model(request, around).folder, temp / "bundled/demo-dense-4bit");
  make_demo(temp / "data/mere.run/models/demo-dense-4bit");
  EXPECT_EQ(resolve_model(request, around).folder, temp / "data/mere.run/models/demo-dense-4bit");
  make_demo(temp / "two/demo-dense-4bit");
  EXPECT_EQ(resolve_model(request, around).folder, temp / "two/demo-dense-4bit");
  // An incomplete folder is skipped with a warning that names what it lacks.
  make_demo(temp / "one/demo-dense-4bit");
  fs::remove(temp / "one/demo-dense-4bit/tokenizer.json");
  const ResolvedModel found = resolve_model(request, around);
  EXPECT_EQ(found.folder, temp / "two/demo-dense-4bit");
  EXPECT_THAT(found.warnings,
              ElementsAre(AllOf(HasSubstr("one/demo-dense-4bit"), HasSubstr("tokenizer.json"))));
  EXPECT_EQ(found.id, "demo-dense-4bit");
  EXPECT_EQ(found.traits.width, 8);
  testing::write_file(temp / "one/demo-dense-4bit/tokenizer.json", "{}");
  EXPECT_EQ(resolve_model(request, around).folder, temp / "one/demo-dense-4bit");
}

TEST(Identity, ARootIsTheFolderItself) {
  TempFolder temp;
  make_demo(temp / "anywhere");
  const ResolvedModel local = resolve_model({.model = "", .root = (temp / "anywhere").string()}, {});
  EXPECT_EQ(local.id, "local:anywhere");
  EXPECT_EQ(local.traits.mtp, MtpDefault::kOptIn);
  EXPECT_EQ(resolve_model({.model = "", .root = (temp / "anywhere/").string() + "/"}, {}).id,
            "local:anywhere");
  const ResolvedModel named =
      resolve_model({.model = "demo-dense-4bit", .root = (temp / "anywhere").string()}, {});
  EXPECT_EQ(named.id, "demo-dense-4bit");
  EXPECT_EQ(named.traits.mtp, MtpDefault::kOn);
  EXPECT_EQ(error_of({.model = "demo-dense", .root = (temp / "anywhere").string()}, {}).code(),
            ErrorCode::kInvalidArgument);
}

TEST(Identity, AManifestStatesTheId) {
  TempFolder temp;
  make_demo(temp / "anywhere");
  testing::write_file(temp / "anywhere/mererun.json", R"({"format": 1, "id": "demo-dense-4bit",
      "mtp_norm_convention": "final", "draft_vocabulary": [[0, 127]]})");
  const ResolvedModel model = resolve_model({.model = (temp / "anywhere").string(), .root = ""}, {});
  EXPECT_EQ(model.id, "demo-dense-4bit");
  const LoadOptions options = model.load_options();
  EXPECT_EQ(options.mtp_norm_convention, NormConvention::kFinal);
  ASSERT_TRUE(options.draft_vocabulary.has_value());
  EXPECT_EQ(options.draft_vocabulary->front().last, 127);
  testing::write_file(temp / "anywhere/mererun.json", R"({"format": 1, "id": "something-else"})");
  const ResolvedModel unknown = resolve_model({.model = (temp / "anywhere").string(), .root = ""}, {});
  EXPECT_EQ(unknown.id, "local:anywhere");
  EXPECT_THAT(unknown.warnings, ElementsAre(HasSubstr("something-else")));
}

TEST(Identity, PathsAndIdsAreToldApart) {
  TempFolder temp;
  make_model(temp / "store/demo-dense-4bit");
  make_model(temp / "plain");
  const fs::path before = fs::current_path();
  fs::current_path(temp.path());
  const ModelSurroundings none;
  EXPECT_EQ(resolve_model({.model = "plain", .root = ""}, none).id, "local:plain");
  EXPECT_EQ(resolve_model({.model = "./plain", .root = ""}, none).id, "local:plain");
  EXPECT_EQ(error_of({.model = "./absent", .root = ""}, none).code(), ErrorCode::kNotFound);
  fs::current_path(temp / "store");
  // A known id is looked up in the stores even where a folder of that name is at hand; a spelled path is the
  // folder.
  EXPECT_EQ(error_of({.model = "demo-dense-4bit", .root = ""}, none).code(), ErrorCode::kNotFound);
  EXPECT_EQ(resolve_model({.model = "./demo-dense-4bit", .root = ""}, none).id, "local:demo-dense-4bit");
  fs::current_path(before);
}

TEST(Identity, RootGeometryMismatch) {
  TempFolder temp;
  make_demo(temp / "m");
  const std::string root = (temp / "m").string();
  const Error family = error_of({.model = "demo-moe-4bit", .root = root}, {});
  EXPECT_EQ(family.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(family.what(), HasSubstr("expected the moe family of demo-moe-4bit, got the dense family"));
  const Error layers = error_of({.model = "vision-chat-q38-27b-4bit", .root = root}, {});
  EXPECT_EQ(layers.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(layers.what(), HasSubstr("expected 64 layers"));
  make_model(temp / "narrow", 8, 128);
  EXPECT_THAT(error_of({.model = "demo-dense-4bit", .root = (temp / "narrow").string()}, {}).what(),
              HasSubstr("expected 512 as hidden size (demo-dense-4bit), got 128"));
  // What a folder in the store or a manifest claims about itself is the checkpoint's fault, not the
  // request's.
  make_model(temp / "store/demo-dense-4bit", 8, 128);
  EXPECT_EQ(error_of({.model = "demo-dense-4bit", .root = ""},
                     {.models = (temp / "store").string(), .data_home = "", .home = "", .bundled = ""})
                .code(),
            ErrorCode::kCorruptData);
}

TEST(Identity, NotFoundMessage) {
  const ModelSurroundings around{
      .models = "/no/such/a:/no/such/b", .data_home = "", .home = "/no/home", .bundled = ""};
  const Error known = error_of({.model = "text-agent-ornith-9b", .root = ""}, around);
  EXPECT_EQ(known.code(), ErrorCode::kNotFound);
  for (const char* folder : {"/no/such/a/text-agent-ornith-9b", "/no/such/b/text-agent-ornith-9b",
                             "/no/home/.local/share/mere.run/models/text-agent-ornith-9b"}) {
    EXPECT_THAT(known.what(), HasSubstr(folder));
  }
  EXPECT_THAT(known.hint(), HasSubstr("docs/models.md"));
  const Error unknown = error_of({.model = "demo-dense-4bi", .root = ""}, around);
  EXPECT_EQ(unknown.code(), ErrorCode::kNotFound);
  EXPECT_THAT(unknown.hint(), HasSubstr("demo-dense-4bit"));
  EXPECT_EQ(error_of({.model = "", .root = ""}, around).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of({.model = "text-agent-ornith-35b-mtp", .root = ""}, around).code(),
            ErrorCode::kInvalidArgument);
}

TEST(Identity, AnIncompleteRootNamesWhatItLacks) {
  TempFolder temp;
  testing::write_file(temp / "m/config.json", "{}");
  testing::write_file(temp / "m/mtp.safetensors", "x");  // a head alone is no model
  const Error error = error_of({.model = "", .root = (temp / "m").string()}, {});
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("without tokenizer.json, *.safetensors"));
  EXPECT_EQ(error_of({.model = "", .root = (temp / "absent").string()}, {}).code(), ErrorCode::kNotFound);
}

TEST(Manifest, ReadsEveryField) {
  const std::string sum(64, 'a');
  const ModelManifest manifest = parse_manifest(
      R"({"format": 1, "id": "x", "target": {"repository": "r", "revision": "v"}, "mtp": {"repository": "m"},
          "files": [{"path": "mtp/model.safetensors", "bytes": 12, "sha256": ")" +
          sum + R"("}], "norm_convention": "zero-centred", "expects_retrieval": true})",
      "mererun.json");
  EXPECT_EQ(manifest.id, "x");
  EXPECT_EQ(manifest.target.repository, "r");
  EXPECT_EQ(manifest.target.revision, "v");
  EXPECT_EQ(manifest.mtp.repository, "m");
  ASSERT_EQ(manifest.files.size(), 1u);
  EXPECT_EQ(manifest.files[0].bytes, 12u);
  EXPECT_EQ(manifest.files[0].sha256, sum);
  EXPECT_EQ(manifest.norm_convention, NormConvention::kZeroCentred);
  EXPECT_EQ(manifest.mtp_norm_convention, std::nullopt);
  EXPECT_EQ(manifest.expects_retrieval, true);
}

TEST(Manifest, RefusesBadFields) {
  const std::string sum(64, 'a');
  for (const std::string& text :
       {std::string("{}"), std::string(R"({"format": 2})"),
        std::string(R"({"format": 1, "norm_convention": "x"})"),
        std::string(R"({"format": 1, "draft_vocabulary": [[1]]})"),
        std::string(R"({"format": 1, "draft_vocabulary": [[-1, 3]]})"),
        std::string(R"({"format": 1, "files": [{"path": "../x", "bytes": 1, "sha256": ")") + sum + "\"}]}",
        std::string(R"({"format": 1, "files": [{"path": "/x", "bytes": 1, "sha256": ")") + sum + "\"}]}",
        std::string(R"({"format": 1, "files": [{"path": "x", "bytes": -1, "sha256": ")") + sum + "\"}]}",
        std::string(R"({"format": 1, "files": [{"path": "x", "bytes": 1, "sha256": "00"}]})")}) {
    EXPECT_THROW((void)parse_manifest(text, "mererun.json"), Error) << text;
  }
}

}  // namespace
}  // namespace mererun
