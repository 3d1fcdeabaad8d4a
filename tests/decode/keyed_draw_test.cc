#include "decode/keyed_draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace mererun {
namespace {

TEST(KeyedDraw, ReproducesTheVectorsOfTheContract) {
  EXPECT_EQ(KeyedDraw(0, 0).uniform(0), 0.6561149711801132);
  EXPECT_EQ(KeyedDraw(42, 54).uniform(0), 0.7005495379332068);
  EXPECT_EQ(KeyedDraw(42, 54).uniform(1), 0.8081124230407658);
  EXPECT_EQ(KeyedDraw(42, 55).uniform(1), 0.2897416917910599);
  EXPECT_EQ(KeyedDraw(7, 4944).uniform(248069), 0.048066129557894466);
}

TEST(KeyedDraw, GumbelIsTheDoubleLogarithmOfTheUniform) {
  for (TokenId id = 0; id < 1000; ++id) {
    const KeyedDraw draw(9, 3);
    EXPECT_NEAR(draw.gumbel(id), -std::log(-std::log(draw.uniform(id))), 1e-13);
  }
}

TEST(KeyedDraw, GumbelKeepsItsBits) {
  std::uint64_t hash = 0;
  for (Position position = 0; position < 100; ++position) {
    const KeyedDraw draw(123456789, position);
    for (TokenId id = 0; id < 100; ++id) {
      hash = std::rotl(hash, 9) * 0x9e3779b97f4a7c15ULL ^ std::bit_cast<std::uint64_t>(draw.gumbel(id));
    }
  }
  EXPECT_EQ(hash, 2776364781815446787ULL);
}

TEST(KeyedDraw, BoundIsNeverBelowTheNoiseAndUsuallyClose) {
  double excess = 0;
  int count = 0;
  for (Position position = 0; position < 300; ++position) {
    const KeyedDraw draw(5, position);
    for (TokenId id = 0; id < 1000; ++id, ++count) {
      ASSERT_GE(draw.gumbel_bound(id), draw.gumbel(id)) << position << " " << id;
      excess += draw.gumbel_bound(id) - draw.gumbel(id);
    }
  }
  EXPECT_LT(excess / count, 1.5);
}

TEST(KeyedDraw, UniformFillsTheUnitIntervalEvenly) {
  // Kolmogorov-Smirnov statistic over one position's ids: 1.95 / sqrt(n) is the 0.1% level.
  constexpr int kCount = 100000;
  std::vector<double> values;
  const KeyedDraw draw(77, 12);
  for (TokenId id = 0; id < kCount; ++id) values.push_back(draw.uniform(id));
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (int i = 0; i < kCount; ++i) distance = std::max(distance, std::fabs(values[i] - (i + 0.5) / kCount));
  EXPECT_LT(distance, 1.95 / std::sqrt(kCount));
  EXPECT_GT(values.front(), 0.0);
  EXPECT_LT(values.back(), 1.0);
}

}  // namespace
}  // namespace mererun
