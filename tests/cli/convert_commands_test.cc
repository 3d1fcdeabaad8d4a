// `model convert`, `model verify` and `model link` from outside, and what they make in use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_binary.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kDemo = fs::path(MERERUN_SOURCE_DIR) / "models" / "demo-dense-4bit";

/// A tiny BF16 checkpoint with the bundled tokenizer.
fs::path write_source(const fs::path& folder, bool moe) {
  TinySpec spec = hugging_face(moe ? tiny_moe() : tiny_dense());
  spec.vocabulary = 8192;
  write_tiny_checkpoint(folder, spec);
  for (const char* name : {"tokenizer.json", "chat_template.jinja"})
    fs::copy_file(kDemo / name, folder / name);
  return folder;
}

RunResult convert(const fs::path& source, const fs::path& output, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"model",         "convert",  "--source",
                                     source.string(), "--output", output.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_binary(arguments);
}

class ConvertCommand : public ::testing::TestWithParam<bool> {};

TEST_P(ConvertCommand, ItsResultChatsTheSameWithAndWithoutDrafts) {
  const TempFolder folder;
  write_source(folder / "bf16", GetParam());
  const RunResult made = convert(folder / "bf16", folder / "q4", {"--json"});
  ASSERT_EQ(made.status, 0) << made.errors;
  const Json report = Json::parse(made.output);
  EXPECT_EQ(report["loadable"], true);
  EXPECT_EQ(report["draftHead"]["found"], true);
  EXPECT_EQ(report["shards"]["total"], 2);
  const auto chat = [&](const char* speculation) {
    const RunResult result =
        run_binary({"text", "chat", "-m", (folder / "q4").string(), "--prompt", "Hello", "--temperature", "0",
                    "--max-tokens", "8", "--speculation", speculation, "--json"});
    EXPECT_EQ(result.status, 0) << result.errors;
    return Json::parse(result.output);
  };
  const Json on = chat("on");
  EXPECT_EQ(on["generatedTokens"], 8);
  EXPECT_EQ(on["outputSHA256"], chat("off")["outputSHA256"]);
}

INSTANTIATE_TEST_SUITE_P(Families, ConvertCommand, ::testing::Bool(),
                         [](const auto& instance) { return instance.param ? "Moe" : "Dense"; });

TEST(ConvertCommands, TextReportNamesPrecisionsAndErrors) {
  const TempFolder folder;
  write_source(folder / "bf16", true);
  const RunResult made = convert(folder / "bf16", folder / "out", {"--profile", "mixed-3-6"});
  ASSERT_EQ(made.status, 0) << made.errors;
  for (const char* part : {"Q3 g64", "Q6 g64", "Q8 g64", "relative error", "bound as loading does"})
    EXPECT_THAT(made.output, HasSubstr(part));
}

TEST(ConvertCommands, ExitStatusesOfBadInput) {
  const TempFolder folder;
  write_source(folder / "bf16", false);
  fs::create_directory(folder / "there");
  const RunResult exists = convert(folder / "bf16", folder / "there");
  EXPECT_EQ(exists.status, 64);
  EXPECT_THAT(exists.errors, HasSubstr("expected a folder that does not exist yet"));
  const RunResult quantised = convert(kDemo, folder / "again");
  EXPECT_EQ(quantised.status, 69);
  EXPECT_THAT(quantised.errors, HasSubstr("not quantised yet"));
  const RunResult profile = convert(folder / "bf16", folder / "q3", {"--profile", "q3-activation"});
  EXPECT_EQ(profile.status, 64);
  EXPECT_THAT(profile.errors, HasSubstr("expected a model with experts"));
  const RunResult bits = convert(folder / "bf16", folder / "mixed", {"--profile", "mixed", "--bits", "6"});
  EXPECT_EQ(bits.status, 64);
}

TEST(VerifyCommand, FindsOneFlippedBit) {
  const TempFolder folder;
  write_source(folder / "bf16", false);
  ASSERT_EQ(convert(folder / "bf16", folder / "q4").status, 0);
  const auto verify = [&] {
    return run_binary({"model", "verify", "-m", (folder / "q4").string(), "--json"});
  };
  const RunResult sound = verify();
  ASSERT_EQ(sound.status, 0) << sound.errors;
  const Json report = Json::parse(sound.output);
  EXPECT_EQ(report["pass"], true);
  EXPECT_EQ(report["filesMatched"], 7);
  EXPECT_EQ(report["tensorsScanned"], report["tensors"]);
  {
    std::fstream file(folder / "q4" / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-100, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-100, std::ios::end);
    file.put(byte);
  }
  const RunResult flipped = verify();
  EXPECT_EQ(flipped.status, 65);
  const Json problems = Json::parse(flipped.output)["problems"];
  EXPECT_THAT(problems.get<std::vector<std::string>>(),
              Contains(HasSubstr("model.safetensors: expected SHA-256")));
}

TEST(VerifyCommand, WorksWithoutChecksums) {
  const TempFolder folder;
  write_source(folder / "bf16", false);
  const RunResult result = run_binary({"model", "verify", "-m", (folder / "bf16").string()});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("no checksums to compare with"));
  EXPECT_THAT(result.output, HasSubstr("scanned for NaN and infinity"));
  EXPECT_THAT(result.output, HasSubstr("\nsound\n"));
}

/// Overwrites bytes of a tensor in a safetensors file.
void patch_tensor(const fs::path& path, const std::string& name, std::uint64_t at, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  const std::uint64_t begin = Json::parse(header).at(name).at("data_offsets").at(0);
  file.seekp(static_cast<std::streamoff>(sizeof(header_bytes) + header_bytes + begin + at));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST(VerifyCommand, ScansTheNgramTableToo) {
  TempFolder folder;
  fs::copy(fs::path(MERERUN_BINARY_DIR) / "golden" / "tiny-flash" / "mlx", folder.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const std::string scales =
      "language_model.model.layers.1.ple.ple_embedding.ngram_embedding.shards.2.scales";
  const std::vector<std::string> command = {"model", "verify", "--model", folder.path().string(), "--json"};
  const Json sound = Json::parse(run_binary(command).output);
  EXPECT_EQ(sound["tensorsScanned"], sound["tensors"]);
  patch_tensor(folder / "model.safetensors", scales, 2 * 4000, "\xc1\x7f");
  const auto result = run_binary(command);
  EXPECT_EQ(result.status, 65);
  EXPECT_THAT(
      Json::parse(result.output)["problems"].get<std::vector<std::string>>(),
      Contains(scales +
               ": expected finite numbers, got NaN or infinity at element 4000 in model.safetensors"));
}

TEST(LinkCommand, TheIdThenFindsTheFolder) {
  const TempFolder folder;
  const std::string variable = "MERERUN_MODELS=" + (folder / "store").string();
  const auto link = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"model", "link"});
    return run_binary(arguments, "", {variable});
  };
  const RunResult made = link({"-m", kDemo.string(), "--model", "demo-dense-4bit", "--json"});
  ASSERT_EQ(made.status, 0) << made.errors;
  EXPECT_EQ(Json::parse(made.output)["wasThere"], false);
  EXPECT_TRUE(fs::is_symlink(folder / "store" / "demo-dense-4bit"));
  const RunResult listed = run_binary({"model", "list", "--json"}, "", {variable});
  EXPECT_EQ(Json::parse(listed.output)["models"][0]["path"], (folder / "store" / "demo-dense-4bit").string());
  EXPECT_EQ(
      Json::parse(link({"-m", kDemo.string(), "--model", "demo-dense-4bit", "--json"}).output)["wasThere"],
      true);
}

TEST(LinkCommand, RefusesWhatItCannotStandFor) {
  const TempFolder folder;
  const std::string variable = "MERERUN_MODELS=" + (folder / "store").string();
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"model", "link"});
    return run_binary(arguments, "", {variable});
  };
  const auto status = [&](const std::vector<std::string>& arguments) { return run(arguments).status; };
  write_source(folder / "bf16", false);
  const RunResult nameless = run({"-m", (folder / "bf16").string()});
  EXPECT_EQ(nameless.status, 64);
  EXPECT_NE(nameless.errors.find("expected a known id, by --model or its mererun.json, got local:bf16"),
            std::string::npos)
      << nameless.errors;
  EXPECT_EQ(status({"-m", (folder / "bf16").string(), "--model", "demo-dense-4bit"}), 64) << "other geometry";
  EXPECT_EQ(status({"--model", "demo-dense-4bit"}), 64) << "no folder";
  fs::create_directories(folder / "store" / "demo-dense-4bit");
  EXPECT_EQ(status({"-m", kDemo.string(), "--model", "demo-dense-4bit"}), 64) << "taken";
}

}  // namespace

}  // namespace mererun::testing
