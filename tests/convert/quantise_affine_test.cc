// The quantiser against MLX's own output, byte for byte, and its checks on reading back.
#include "convert/quantise_affine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tests/support/models.h"

namespace mererun::testing {

namespace {

std::vector<float> widened(const TensorEntry& tensor) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < tensor.num_elements(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.data + 2 * i, sizeof(bits));
    values.push_back(bf16_to_f32(bits));
  }
  return values;
}

struct Quantised {
  std::vector<std::byte> codes;
  std::vector<std::uint16_t> scales;
  std::vector<std::uint16_t> biases;

  Quantised(std::size_t weights, AffineFormat format)
      : codes(weights * static_cast<std::size_t>(format.bits) / 8),
        scales(weights / static_cast<std::size_t>(format.group)),
        biases(scales.size()) {}
  AffineRows rows() { return {codes.data(), scales.data(), biases.data()}; }
};

Quantised quantised(const std::vector<float>& values, AffineFormat format) {
  Quantised result(values.size(), format);
  quantise_affine_rows(values, format, result.rows());
  return result;
}

class QuantiseAffine : public ::testing::TestWithParam<AffineFormat> {};

TEST_P(QuantiseAffine, EqualsMlxByteForByte) {
  const AffineFormat format = GetParam();
  const SafetensorsFile file(fixtures_dir() / "convert/mlx-quantise.safetensors");
  const std::string prefix = fmt::format("q{}g{}.", format.bits, format.group);
  Quantised got = quantised(widened(*file.find("weights")), format);
  const auto expect_equal = [&](const char* part, const void* data, std::size_t bytes) {
    const TensorEntry* expected = file.find(prefix + part);
    ASSERT_NE(expected, nullptr) << part;
    ASSERT_EQ(expected->bytes, bytes) << part;
    const auto* mine = static_cast<const std::byte*>(data);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(mine[i], expected->data[i]) << part << " byte " << i;
  };
  expect_equal("weight", got.codes.data(), got.codes.size());
  expect_equal("scales", got.scales.data(), got.scales.size() * 2);
  expect_equal("biases", got.biases.data(), got.biases.size() * 2);
}

TEST_P(QuantiseAffine, ReadsBackWithinTheErrorOfItsFormat) {
  const AffineFormat format = GetParam();
  const SafetensorsFile file(fixtures_dir() / "convert/mlx-quantise.safetensors");
  const std::vector<float> values = widened(*file.find("weights"));
  Quantised stored = quantised(values, format);
  std::int64_t worst = 0;
  const QuantisationError error = compare_affine_rows(values, format, stored.rows(), worst);
  EXPECT_EQ(worst, -1);
  EXPECT_EQ(error.weights, values.size());
  EXPECT_GT(error.relative(), 0);
  EXPECT_LT(error.relative(), format.bits == 2 ? 0.2 : 0.1);
}

TEST_P(QuantiseAffine, FindsAWrongCode) {
  const AffineFormat format = GetParam();
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.37f);
  Quantised stored = quantised(values, format);
  stored.codes[stored.codes.size() / 2] ^= std::byte{0xff};
  std::int64_t worst = -1;
  (void)compare_affine_rows(values, format, stored.rows(), worst);
  // The byte in the middle holds codes of the weights from 128 on.
  EXPECT_GE(worst, 128);
  EXPECT_LT(worst, 136);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantiseAffine,
                         ::testing::Values(AffineFormat{2, 32}, AffineFormat{2, 64}, AffineFormat{2, 128},
                                           AffineFormat{3, 32}, AffineFormat{3, 64}, AffineFormat{3, 128},
                                           AffineFormat{4, 32}, AffineFormat{4, 64}, AffineFormat{4, 128},
                                           AffineFormat{5, 32}, AffineFormat{5, 64}, AffineFormat{5, 128},
                                           AffineFormat{6, 32}, AffineFormat{6, 64}, AffineFormat{6, 128},
                                           AffineFormat{8, 32}, AffineFormat{8, 64}, AffineFormat{8, 128}),
                         [](const auto& instance) {
                           return fmt::format("q{}g{}", instance.param.bits, instance.param.group);
                         });

TEST(QuantiseAffineByHand, FollowsTheWorkedExample) {
  // w = -0.3 + 0.1 (i mod 16): s = -0.1, beta = 1.2, codes 15 - (i mod 16).
  std::vector<float> values(32);
  for (std::size_t i = 0; i < 32; ++i) values[i] = -0.3f + 0.1f * static_cast<float>(i % 16);
  Quantised got = quantised(values, {4, 32});
  const std::vector<std::uint32_t> expected{0x89abcdef, 0x01234567, 0x89abcdef, 0x01234567};
  std::vector<std::uint32_t> words(4);
  std::memcpy(words.data(), got.codes.data(), 16);
  EXPECT_EQ(words, expected);
  EXPECT_EQ(got.scales[0], f32_to_bf16(-0.1f));
  EXPECT_EQ(got.biases[0], f32_to_bf16(1.2f));
}

TEST(QuantiseAffineByHand, ExactValuesHaveNoError) {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < 64; ++i) values[i] = 0.25f * static_cast<float>(i % 16) - 3.75f;
  Quantised stored = quantised(values, {4, 64});
  std::int64_t worst = 0;
  EXPECT_EQ(compare_affine_rows(values, {4, 64}, stored.rows(), worst).squared_error, 0);
  EXPECT_EQ(worst, -1);
}

}  // namespace

}  // namespace mererun::testing
