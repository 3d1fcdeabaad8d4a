#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/models.h"

namespace mererun {
namespace {

using testing::all_logits;
using testing::load_model;

/// First differing element, or -1: bits, not values.
int first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<int>(i);
  return -1;
}

class ModelChunking : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return testing::golden_dir() / GetParam() / "mlx"; }
};

TEST_P(ModelChunking, LogitsDoNotDependOnChunks) {
  const auto model = load_model(folder(), "cpu:1");
  const std::vector<TokenId> ids = testing::random_texts(300, model->config(), 7);
  const std::vector<float> whole = all_logits(*model, ids, 1024);
  for (const int chunk : {1, 2, 7, 63, 64, 65, 100, 256}) {
    EXPECT_EQ(first_difference(whole, all_logits(*model, ids, chunk)), -1) << "chunk " << chunk;
  }
}

TEST_P(ModelChunking, LogitsDoNotDependOnThreads) {
  const auto one = load_model(folder(), "cpu:1");
  const std::vector<TokenId> ids = testing::random_texts(300, one->config(), 8);
  const std::vector<float> expected = all_logits(*one, ids, 1024);
  for (const char* backend : {"cpu:2", "cpu:3"}) {
    const auto model = load_model(folder(), backend);
    EXPECT_EQ(first_difference(expected, all_logits(*model, ids, 1024)), -1) << backend;
    EXPECT_EQ(first_difference(expected, all_logits(*model, ids, 5)), -1) << backend << " in chunks of 5";
  }
}

TEST_P(ModelChunking, CpuGivesTheBitsOfTheReference) {
  const auto reference = load_model(folder(), "reference");
  const auto cpu = load_model(folder(), "cpu");
  const std::vector<TokenId> ids = testing::random_texts(150, cpu->config(), 9);
  const std::vector<float> expected = all_logits(*reference, ids, 1024);
  EXPECT_EQ(first_difference(expected, all_logits(*cpu, ids, 1024)), -1);
  EXPECT_EQ(first_difference(expected, all_logits(*cpu, ids, 1)), -1);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, ModelChunking, ::testing::Values("tiny-dense", "tiny-moe", "tiny-flash"), [](const auto& p) {
      return std::string(p.param == "tiny-dense" ? "Dense" : p.param == "tiny-moe" ? "Moe" : "Flash");
    });

}  // namespace
}  // namespace mererun
