#include "model/synthetic_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "model/flash_host_weights.h"
#include "tests/support/affine_quantise.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;

ErrorCode refusal_of(std::string_view name, std::optional<int> layers) {
  try {
    make_synthetic_geometry(name, layers);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(SyntheticGeometry, HasThePublishedShapes) {
  const ModelConfig dense = make_synthetic_geometry("q38-27b", std::nullopt).config;
  EXPECT_EQ(dense.layers, 64);
  EXPECT_EQ(dense.count(LayerKind::kAttention), 16);
  EXPECT_EQ(dense.conv_dim(), 10240);
  EXPECT_EQ(dense.value_dim(), 6144);
  const ModelConfig moe = make_synthetic_geometry("ornith-35b", std::nullopt).config;
  EXPECT_EQ(moe.layers, 40);
  EXPECT_EQ(moe.conv_dim(), 8192);
  EXPECT_TRUE(moe.is_moe());
}

TEST(SyntheticGeometry, ShortensTheStackAndKeepsItsPattern) {
  const ModelConfig config = make_synthetic_geometry("q38-27b", 6).config;
  EXPECT_EQ(config.kinds.size(), 6U);
  EXPECT_EQ(config.kinds[3], LayerKind::kAttention);
  EXPECT_EQ(config.kinds[5], LayerKind::kDeltaNet);
  EXPECT_EQ(config.hidden, 5120);
}

TEST(SyntheticGeometry, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal_of("q38-28b", std::nullopt), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal_of("small-dense", 3), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refusal_of("small-dense", 9), ErrorCode::kInvalidArgument);
  for (const std::string& name : synthetic_geometry_names()) {
    EXPECT_EQ(make_synthetic_geometry(name, 4).name, name);
  }
}

TEST(SyntheticGeometry, TheTableHasTheSizeAskedFor) {
  EXPECT_THROW(make_synthetic_geometry("small-dense", std::nullopt, 1 << 20), Error);
  const SyntheticWeights weights =
      make_synthetic_weights(make_synthetic_geometry("small-flash", 4, 3 << 20).config, 1);
  const HostNgramTable& table = weights.host.layers[1].flash->ngram->table;
  EXPECT_NEAR(static_cast<double>(table.bytes), 3 << 20, 64 << 10);
  const std::filesystem::path path = table.shards.front().arrays.front().path;
  EXPECT_EQ(std::filesystem::file_size(path), table.bytes);
}

TEST(SyntheticWeights, TheTableGoesWithItsMemory) {
  std::filesystem::path path;
  {
    const SyntheticWeights weights =
        make_synthetic_weights(make_synthetic_geometry("small-flash", 4, 1 << 20).config, 1);
    path = weights.host.layers[1].flash->ngram->table.shards.front().arrays.front().path;
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(std::filesystem::hard_link_count(path), 0u) << "a name would outlive a process that is killed";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SyntheticWeights, AnInterruptEndsTheWritingOfTheTable) {
  const ModelConfig config = make_synthetic_geometry("small-flash", 4, 1 << 20).config;
  const std::atomic<bool> cancelled = true;
  try {
    make_synthetic_weights(config, 1, &cancelled);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

TEST(SyntheticWeights, BytesAreThoseOfTheModel) {
  const SyntheticGeometry geometry = make_synthetic_geometry("small-dense", std::nullopt);
  const SyntheticWeights weights = make_synthetic_weights(geometry.config, 1);
  std::uint64_t bytes = 0;
  for_each_linear(weights.host, [&](std::string_view, const LinearSource& source) {
    EXPECT_EQ(source.format, WeightFormat::kAffine);
    bytes += static_cast<std::uint64_t>(source.bytes());
  });
  EXPECT_EQ(weights.host.report.mapped_bytes, bytes);
}

TEST(SyntheticWeights, RowsAreCentredAndOfHalfUnitNorm) {
  const SyntheticWeights weights = make_synthetic_weights(make_synthetic_geometry("small-moe", 4).config, 1);
  for_each_linear(weights.host, [&](std::string_view group, const LinearSource& source) {
    const std::vector<float> values = testing::dequantise(source);
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto n = static_cast<double>(values.size());
    const double row_norm = std::sqrt(squares / n * source.in);
    EXPECT_GT(row_norm, 0.45) << group;
    EXPECT_LT(row_norm, 0.75) << group;
    EXPECT_LT(std::abs(sum / n), 4 * std::sqrt(squares / n / n) + 0.02 * std::sqrt(squares / n)) << group;
  });
}

TEST(SyntheticWeights, MatricesDiffer) {
  const SyntheticWeights weights =
      make_synthetic_weights(make_synthetic_geometry("small-dense", std::nullopt).config, 1);
  std::set<std::string> seen;
  int matrices = 0;
  for_each_linear(weights.host, [&](std::string_view, const LinearSource& source) {
    ++matrices;
    seen.insert(std::string(static_cast<const char*>(source.weight), 64));
  });
  EXPECT_EQ(static_cast<int>(seen.size()), matrices);
}

std::vector<float> logits_of(const SyntheticWeights& weights, const std::string& backend, int chunk) {
  HostWeights host = weights.host;
  Model model(testing::make_ops(backend), std::move(host), {});
  return testing::all_logits(model, testing::random_ids(12, model.config().vocabulary, 2), chunk);
}

TEST(SyntheticWeights, AModelOfThemComputesTheSameBitsEverywhere) {
  for (const char* name : {"small-dense", "small-moe"}) {
    const ModelConfig config = make_synthetic_geometry(name, 4).config;
    const SyntheticWeights weights = make_synthetic_weights(config, 1);
    const std::vector<float> logits = logits_of(weights, "cpu", 12);
    for (const float value : logits) ASSERT_TRUE(std::isfinite(value));
    const std::uint64_t hash = testing::hash_bits(logits);
    EXPECT_EQ(testing::hash_bits(logits_of(weights, "cpu", 1)), hash) << name;
    EXPECT_EQ(testing::hash_bits(logits_of(weights, "reference", 5)), hash) << name;
    EXPECT_EQ(testing::hash_bits(logits_of(make_synthetic_weights(config, 1), "cpu", 12)), hash) << name;
    EXPECT_NE(testing::hash_bits(logits_of(make_synthetic_weights(config, 2), "cpu", 12)), hash) << name;
  }
}

}  // namespace
}  // namespace mererun
