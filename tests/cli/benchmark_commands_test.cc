// The benchmark commands from outside: what they refuse before anything is loaded, and whole runs on a
// bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "kernels/cpu/cpu_isa.h"
#include "model/synthetic_weights.h"
#include "tests/cli/run_binary.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr const char* kInstructionSets[] = {"portable", "avx2", "avx512", "avx512-vnni", "neon"};

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

/// A checkpoint folder that is complete by its names, and whose weights can't be read.
class UnloadableModel : public ::testing::Test {
 protected:
  UnloadableModel() {
    const std::filesystem::path demo = MERERUN_SOURCE_DIR "/models/demo-dense-4bit";
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      std::filesystem::copy_file(demo / name, folder_ / name);
    write_file(folder_ / "model.safetensors", "no weights");
  }
  RunResult run(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), {"--model-root", folder_.path().string()});
    words.insert(words.end(), more.begin(), more.end());
    return run_binary(words);
  }
  TempFolder folder_;
};

TEST_F(UnloadableModel, WidthsAreCheckedBeforeTheWeights) {
  const std::vector<std::string> command = {"model", "benchmark", "q38-verification"};
  EXPECT_EQ(run(command, {}).status, 65);  // so far it gets with what is allowed
  for (const char* widths : {"10", "1,4,16", "0", "33", "4,4", "4,,8", ""}) {
    const RunResult result = run(command, {"--widths", widths});
    EXPECT_EQ(result.status, 64) << widths;
    EXPECT_EQ(result.output, "");
  }
  EXPECT_THAT(run(command, {"--widths", "10"}).errors, HasSubstr("at most the certified width 9, got 10"));
  EXPECT_EQ(run(command, {"--widths", "10", "--uncertified"}).status, 65);
  EXPECT_EQ(run(command, {"--tokens", "31"}).status, 64);
  EXPECT_EQ(run(command, {"--tokens", "9000"}).status, 64);
}

TEST_F(UnloadableModel, InstructionSetsAreCheckedBeforeTheWeights) {
  const std::vector<std::string> command = {"model", "benchmark", "q38-verification"};
  EXPECT_EQ(run(command, {"--cpu-isa", "portable"}).status, 65);
  EXPECT_EQ(run(command, {"--cpu-isa", "sse2"}).status, 64);
  for (const char* name : kInstructionSets) {
    if (cpu::is_supported(parse_cpu_isa(name))) continue;
    const RunResult result = run(command, {"--cpu-isa", name});
    EXPECT_EQ(result.status, 69) << name;
    EXPECT_THAT(result.errors, MatchesRegex(".*expected one that this machine runs \\(.*portable.*\\), got " +
                                            std::string(name) + "\n"));
  }
}

/// Text and logits of a reply, on every instruction set that the machine has.
TEST(InstructionSets, GiveTheSameReply) {
  for (const char* model : {"demo-dense-4bit", "demo-moe-4bit"}) {
    Json first;
    for (const char* name : kInstructionSets) {
      if (!cpu::is_supported(parse_cpu_isa(name))) continue;
      const RunResult result =
          run_binary({"text", "chat", "--model", model, "--prompt", "Write a loop.", "--temperature", "0",
                      "--max-tokens", "24", "--logprobs", "20", "--json", "--cpu-isa", name, "--backend",
                      "cpu", "--log-level", "info"});
      ASSERT_EQ(result.status, 0) << result.errors;
      EXPECT_THAT(result.errors, HasSubstr(std::string("instruction_set=") + name + "\n"));
      const Json report = Json::parse(result.output);
      const Json reply = {report["response"], report["outputSHA256"], report["logprobs"]};
      ASSERT_EQ(report["logprobs"].size(), report["generatedTokens"].get<std::size_t>());
      if (first.is_null()) first = reply;
      EXPECT_EQ(reply, first) << model << " on " << name;
    }
  }
}

TEST(InstructionSets, AVariableChoosesAndReportsSayWhich) {
  const RunResult result = run_binary({"model", "benchmark", "q38-verification", "--widths", "1,8",
                                       "--tokens", "32", "--trials", "1", "--backend", "cpu", "--json"},
                                      "", {"MERERUN_CPU_ISA=portable"});
  ASSERT_EQ(result.status, 0) << result.errors;
  for (const Json& row : Json::parse(result.output)) EXPECT_EQ(row["device"]["instructionSet"], "portable");
}

TEST_F(UnloadableModel, RoomForPromptAndReplyIsCheckedBeforeTheWeights) {
  const std::vector<std::string> command = {"model", "benchmark", "q36-mtp"};
  EXPECT_EQ(run(command, {}).status, 65);
  const RunResult result =
      run(command, {"--context-size", "200", "--decode-tokens", "100", "--prompt-repeat", "20"});
  EXPECT_EQ(result.status, 64);
  EXPECT_THAT(result.errors, HasSubstr("prompt tokens + 100 decode tokens, got 200"));
  EXPECT_EQ(run(command, {"--prompt-file", (folder_ / "absent.txt").string()}).status, 66);
}

TEST_F(UnloadableModel, AReceiptThatCannotBeWrittenIsRefusedBeforeTheWeights) {
  const std::vector<std::string> command = {"model", "qualify"};
  EXPECT_EQ(run(command, {"--receipt", "/nonexistent/folder/receipt.json"}).status, 74);
  EXPECT_EQ(run(command, {"--receipt", folder_.path().string()}).status, 65);
}

// The trunk lacks a tensor too, which binding would find.
TEST(BenchmarkCommands, AMissingDraftHeadIsFoundBeforeTheWeightsAreBound) {
  const TempFolder folder;
  TinySpec spec = tiny_dense();
  spec.vocabulary = 8192;
  spec.head = TinyHead::kNone;
  TinyFiles files = make_tiny_checkpoint(spec);
  files.erase("language_model.model.norm.weight");
  files.write(folder.path());
  for (const char* name : {"tokenizer.json", "chat_template.jinja"})
    std::filesystem::copy_file(std::filesystem::path(MERERUN_SOURCE_DIR "/models/demo-dense-4bit") / name,
                               folder / name);
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-m", folder.path().string()});
    return run_binary(words);
  };
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"model", "benchmark", "q36-mtp"}, {"model", "qualify"}}) {
    const RunResult result = run(words);
    EXPECT_EQ(result.status, 66);
    EXPECT_THAT(result.errors,
                HasSubstr("expected a draft head (mtp.* tensors), got none\nhint: --mtp-root"));
  }
  const RunResult serial = run({"model", "benchmark", "q36-mtp", "--variants", "baseline"});
  EXPECT_EQ(serial.status, 65);
  EXPECT_THAT(serial.errors, HasSubstr("norm.weight"));
}

TEST(SyntheticOptions, AreCheckedTogether) {
  const std::vector<std::string> command = {"model", "benchmark", "q36-mtp"};
  const auto status = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = command;
    words.insert(words.end(), more.begin(), more.end());
    return run_binary(words).status;
  };
  EXPECT_EQ(status({"--synthetic", "small-medium"}), 64);
  EXPECT_EQ(status({"--synthetic-layers", "4"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--synthetic-layers", "3"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--synthetic-layers", "9"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--model", "demo-dense-4bit"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--prompt", "hello"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--context-size", "100"}), 64);
  EXPECT_EQ(status({"--synthetic-table-mib", "4"}), 64);
  EXPECT_EQ(status({"--synthetic", "small-dense", "--synthetic-table-mib", "4"}), 64);
  const RunResult known = run_binary({"model", "benchmark", "q38-verification", "--synthetic", "x"});
  for (const std::string& name : synthetic_geometry_names()) EXPECT_THAT(known.errors, HasSubstr(name));
}

TEST(MtpBenchmarkCommand, MeasuresABundledModel) {
  const RunResult result = run_binary(
      {"model", "benchmark", "q36-mtp", "--prompt-repeat", "2", "--decode-tokens", "16", "--warmups", "0",
       "--variants", "baseline,adaptive,forced,fixed", "--threads", "1000", "--json"},
      "", {"MERERUN_Q35_FUSED_QKV=1"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json report = Json::parse(result.output);
  EXPECT_THAT(keys(report), ElementsAre("backend", "build", "device", "environment", "invalidReasons",
                                        "model", "modelFingerprint", "overrides", "scenarios",
                                        "schemaVersion", "sources", "threads", "valid"));
  EXPECT_EQ(report["model"], "demo-dense-4bit");
  EXPECT_EQ(report["threads"], usable_threads(1000));
  EXPECT_EQ(report["valid"], report["invalidReasons"].empty());
  EXPECT_EQ(report["overrides"][0]["effect"], "no-effect");
  EXPECT_TRUE(report["environment"].contains("competingProcesses"));
  ASSERT_EQ(report["scenarios"].size(), 1U);
  const Json& scenario = report["scenarios"][0];
  EXPECT_EQ(scenario["greedyOutputParity"], true);
  EXPECT_EQ(scenario["outputParity"], true);
  EXPECT_EQ(scenario["promptRepeat"], 2);
  ASSERT_EQ(scenario["variants"].size(), 4U);
  const std::vector<std::string> policies = {"disabled", "adaptive", "forced", "fixed"};
  const std::vector<std::string> reasons = {"disabled", "default", "explicit", "explicit"};
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& variant = scenario["variants"][i];
    EXPECT_EQ(variant["policy"], policies[i]);
    EXPECT_EQ(variant["admissionReason"], reasons[i]);
    EXPECT_EQ(variant["expectedMTPActive"], i > 0);
    EXPECT_EQ(variant["generatedTokens"], 16);
    EXPECT_EQ(variant["outputSHA256"], scenario["variants"][0]["outputSHA256"]);
    EXPECT_EQ(variant["acceleration"].contains("draftHistoryTokens"), i > 0);
  }
  EXPECT_EQ(scenario["variants"][3]["acceleration"]["costModel"], "full");
  EXPECT_EQ(scenario["variants"][3]["acceleration"]["draftHistoryTokens"],
            scenario["variants"][3]["promptTokens"].get<int>() - 1);
}

TEST(MtpBenchmarkCommand, AProfiledRunIsNoSpeedEvidence) {
  const RunResult result =
      run_binary({"model", "benchmark", "q36-mtp", "--prompt-repeat", "1", "--decode-tokens", "8",
                  "--warmups", "0", "--variants", "baseline,fixed", "--json"},
                 "", {"MERERUN_Q35_MTP_PROFILE=1"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json report = Json::parse(result.output);
  EXPECT_EQ(report["valid"], false);
  EXPECT_THAT(report["invalidReasons"].dump(), HasSubstr("profiled"));
  EXPECT_FALSE(report["scenarios"][0]["variants"][1]["acceleration"]["speculationProfile"]["rounds"].empty());
}

TEST(MtpBenchmarkCommand, SamplesAtEveryTemperatureWithTheSameText) {
  const RunResult result =
      run_binary({"model", "benchmark", "q36-mtp", "--model", "demo-moe-4bit", "--prompt", "What is 47 + 85?",
                  "--decode-token-values", "8,12", "--temperature-values", "0,0.8", "--warmups", "0",
                  "--variants", "fixed,baseline", "--json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json scenarios = Json::parse(result.output)["scenarios"];
  ASSERT_EQ(scenarios.size(), 4U);
  for (const Json& scenario : scenarios) {
    EXPECT_EQ(scenario["outputParity"], true);
    EXPECT_EQ(scenario.contains("greedyOutputParity"), scenario["temperature"] == 0.0);
    EXPECT_FALSE(scenario.contains("promptRepeat"));
    EXPECT_EQ(scenario["variants"][0]["name"], "fixed");  // run order
  }
}

TEST(VerificationBenchmarkCommand, ProvesWidthsOfABundledModel) {
  const RunResult result = run_binary({"model", "benchmark", "q38-verification", "--widths", "1,4",
                                       "--tokens", "32", "--trials", "2", "--json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json rows = Json::parse(result.output);
  ASSERT_EQ(rows.size(), 4U);
  std::vector<int> widths;
  for (const Json& row : rows) {
    widths.push_back(row["width"]);
    EXPECT_EQ(row["greedyOutputParity"], true);
    EXPECT_EQ(row["logitsParity"], true);
    EXPECT_EQ(row["verifiedTokens"], 32);
    EXPECT_FALSE(row.contains("certified"));
  }
  EXPECT_THAT(widths, ElementsAre(1, 4, 4, 1));  // the second trial runs backwards
}

TEST(VerificationBenchmarkCommand, ProvesASyntheticModelAndSaysSo) {
  const RunResult result =
      run_binary({"model", "benchmark", "q38-verification", "--synthetic", "small-moe", "--synthetic-layers",
                  "4", "--widths", "1,8,12", "--uncertified", "--tokens", "32", "--trials", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  for (const Json& row : Json::parse(result.output)) {
    EXPECT_EQ(row["weights"], "synthetic");
    EXPECT_EQ(row["logitsParity"], true);
    EXPECT_GE(row["distinctExpertsPerBlock"].get<double>(), 4.0);
    EXPECT_EQ(row.contains("certified"), row["width"] == 12);
  }
}

TEST(VerificationBenchmarkCommand, FlashNextIsProvedAtWidthsOfItsOwn) {
  const RunResult result = run_binary({"model", "benchmark", "q38-verification", "--synthetic", "small-flash",
                                       "--synthetic-layers", "4", "--synthetic-table-mib", "2", "--tokens",
                                       "32", "--trials", "1", "--json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  std::vector<int> widths;
  for (const Json& row : Json::parse(result.output)) {
    widths.push_back(row["width"]);
    EXPECT_EQ(row["model"], "synthetic:small-flash");
    EXPECT_EQ(row["logitsParity"], true);
    EXPECT_FALSE(row.contains("certified"));
  }
  EXPECT_THAT(widths, ElementsAre(1, 4, 8, 16, 32));
}

TEST(VerificationBenchmarkCommand, AFolderForTheTableThatIsMissingIsOneError) {
  const RunResult result = run_binary({"model", "benchmark", "q38-verification", "--synthetic", "small-flash",
                                       "--synthetic-layers", "4", "--synthetic-table-mib", "2"},
                                      {}, {"TMPDIR=/nonexistent"});
  EXPECT_EQ(result.status, 74);
  EXPECT_EQ(result.errors,
            "mere.run: error: TMPDIR: expected a folder for temporary files, got No such file "
            "or directory\n");
}

// Drafts that are asked for ignore the prompt's length, not the context's.
TEST(MtpBenchmarkCommand, TheForcedThresholdIsOneOfTheContext) {
  const auto reason = [](const char* threshold) {
    const RunResult result = run_binary({"model", "benchmark", "q36-mtp", "--decode-tokens", "4", "--warmups",
                                         "0", "--prompt", "Hi", "--context-size", "1000", "--variants",
                                         "forced", "--forced-mtp-min-prompt-tokens", threshold, "--json"});
    return Json::parse(result.output)["scenarios"][0]["variants"][0]["admissionReason"].get<std::string>();
  };
  EXPECT_EQ(reason("0"), "explicit");
  EXPECT_EQ(reason("1000"), "explicit");
  EXPECT_EQ(reason("1001"), "context-below-threshold");
}

TEST(MtpBenchmarkCommand, APromptFileThatIsAFolderIsOneError) {
  const RunResult result = run_binary({"model", "benchmark", "q36-mtp", "--prompt-file", "/tmp"});
  EXPECT_EQ(result.status, 74);
  EXPECT_EQ(result.errors, "mere.run: error: /tmp: expected a file, got a folder\n");
}

TEST(MtpBenchmarkCommand, MeasuresASyntheticModelAndSaysSo) {
  const RunResult result =
      run_binary({"model", "benchmark", "q36-mtp", "--synthetic", "small-dense", "--synthetic-layers", "4",
                  "--prompt-repeat", "2", "--decode-tokens", "12", "--warmups", "0", "--json"});
  ASSERT_EQ(result.status, 0) << result.errors;
  const Json report = Json::parse(result.output);
  EXPECT_EQ(report["weights"], "synthetic");
  EXPECT_EQ(report["layers"], 4);
  EXPECT_EQ(report["model"], "synthetic:small-dense");
  EXPECT_EQ(report["scenarios"][0]["outputParity"], true);
  EXPECT_EQ(report["scenarios"][0]["variants"][2]["acceleration"]["draftHistoryTokens"], 31);
}

}  // namespace

}  // namespace mererun::testing
