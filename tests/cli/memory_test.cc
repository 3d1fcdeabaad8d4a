// The memory of the program against what `model inspect` announces.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_binary.h"

namespace mererun::testing {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kRest = 100'000'000;  // program, tokenizer, template, threads' scratch

class Memory : public ::testing::TestWithParam<const char*> {};

std::int64_t mapped_bytes(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

TEST_P(Memory, StaysBelowMappedWeightsPlanAndAHundredMegabytes) {
  const auto inspected = run_binary({"model", "inspect", "--model", GetParam(), "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.errors;
  const Json report = Json::parse(inspected.output);
  const Json& need = report.at("memory").at(0);  // 4,096 positions
  ASSERT_EQ(need.at("context"), 4096);
  const std::int64_t weights = need.at("weightsBytes"), arenas = need.at("arenaBytes"),
                     state = need.at("stateBytes"), kv = need.at("kvBytes");

  std::string prompt = "Repeat what you read.";
  for (int i = 0; i < 250; ++i) prompt += " The otter of house " + std::to_string(i) + " counts to nine.";
  const auto chat = run_binary({"text", "chat", "--model", GetParam(), "--temperature", "0", "--max-tokens",
                                "64", "--context-size", "4096", "--json"},
                               prompt);
  ASSERT_EQ(chat.status, 0) << chat.errors;
  const std::int64_t tokens = Json::parse(chat.output).at("prompt").at("tokens");
  EXPECT_GT(tokens, 2000) << "a short prompt would prove little";
  const std::int64_t mapped = mapped_bytes(report.at("path").get<std::string>());
  EXPECT_LT(chat.peak_bytes, mapped + weights + arenas + state + kv + kRest);
  EXPECT_GT(chat.peak_bytes, weights) << "what is announced must also be real";
}

INSTANTIATE_TEST_SUITE_P(Bundled, Memory, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"));

}  // namespace

}  // namespace mererun::testing
