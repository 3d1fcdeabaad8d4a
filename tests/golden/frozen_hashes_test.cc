// The bits of the numeric contract, version 1, on every committed checkpoint. A kernel that changes one of
// these hashes computes something else: the contract's version number would have to change with it.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using nlohmann::json;

json load_hashes() {
  std::ifstream file(testing::source_dir() / "tests/golden/frozen_hashes.json");
  return json::parse(file);
}

std::string hash_in(const json& hashes, const char* kind, const std::string& id) {
  return hashes.at(kind).at(id).get<std::string>();
}

std::filesystem::path folder_of(const std::string& id) {
  return id.starts_with("demo") ? testing::bundled(id) : testing::golden_dir() / id / "mlx";
}

std::string hex(std::uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Hash of the logits at every position of `length` fixed ids.
std::string hash_of(const std::string& id, const std::string& backend, int length, int chunk) {
  const auto model = testing::load_model(folder_of(id), backend);
  const auto ids = testing::random_ids(length, model->config().vocabulary, 2026);
  return hex(testing::hash_bits(testing::all_logits(*model, ids, chunk)));
}

class FrozenHashes : public ::testing::TestWithParam<std::string> {};

TEST_P(FrozenHashes, CpuBackend) {
  const json hashes = load_hashes();
  ASSERT_EQ(hashes.at("contractVersion").get<int>(), kNumericContractVersion);
  EXPECT_EQ(hash_of(GetParam(), "cpu", 300, 1024), hash_in(hashes, "logits300", GetParam()));
  EXPECT_EQ(hash_of(GetParam(), "cpu:1", 300, 7), hash_in(hashes, "logits300", GetParam()))
      << "one thread, chunks of 7";
}

TEST_P(FrozenHashes, ReferenceBackend) {
  const json hashes = load_hashes();
  EXPECT_EQ(hash_of(GetParam(), "reference", 40, 1024), hash_in(hashes, "logits40", GetParam()));
  EXPECT_EQ(hash_of(GetParam(), "cpu", 40, 1), hash_in(hashes, "logits40", GetParam()))
      << "the CPU, token by token";
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, FrozenHashes,
                         ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash", "demo-dense-4bit",
                                           "demo-moe-4bit"),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace mererun
