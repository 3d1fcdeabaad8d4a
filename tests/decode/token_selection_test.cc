#include "decode/token_selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/f64_math.h"

namespace mererun {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows with many equal values, both zeros, and some -inf.
std::vector<float> tied_row(std::size_t size, int distinct, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> row(size);
  for (float& value : row) {
    const int level = static_cast<int>(random() % static_cast<std::uint32_t>(distinct));
    value =
        level == 0 ? (random() % 2 == 0 ? 0.0f : -0.0f) : 0.25f * static_cast<float>(level - distinct / 2);
    if (random() % 17 == 0) value = -kInfinity;
  }
  return row;
}

std::vector<float> normal_row(std::size_t size, float deviation, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(size);
  for (float& value : row) value = normal(random);
  return row;
}

std::vector<Candidate> ranked_by_sorting(const std::vector<float>& row) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] != -kInfinity) all.push_back({row[i], static_cast<std::int32_t>(i)});
  }
  std::sort(all.begin(), all.end(), ranks_before);
  return all;
}

void expect_same(const std::vector<Candidate>& got, const std::vector<Candidate>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].index, expected[i].index) << "rank " << i;
    ASSERT_EQ(got[i].value, expected[i].value) << "rank " << i;
  }
}

TEST(FindMaximum, TakesTheLowestIndexOfTheLargestValue) {
  for (const std::size_t size : {1u, 2u, 15u, 16u, 17u, 1023u, 1024u, 1025u, 4096u, 5000u}) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> row = tied_row(size, 4, seed);
      const std::vector<Candidate> ranked = ranked_by_sorting(row);
      const RowMaximum maximum = find_maximum(row);
      ASSERT_TRUE(maximum.is_numeric);
      ASSERT_EQ(maximum.index, ranked.empty() ? -1 : ranked.front().index) << size << " " << seed;
    }
  }
}

TEST(FindMaximum, TreatsBothZerosAsEqual) {
  std::vector<float> row(3000, -1.0f);
  row[100] = -0.0f;
  row[2500] = 0.0f;
  EXPECT_EQ(find_maximum(row).index, 100);
}

TEST(FindMaximum, ReportsNaNAndInfinityAtEveryPlace) {
  for (const std::size_t at : {0u, 7u, 1023u, 1024u, 2047u, 2048u, 2999u}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      std::vector<float> row(3000, 1.0f);
      row[at] = bad;
      EXPECT_FALSE(find_maximum(row).is_numeric) << at;
    }
  }
}

TEST(FindMaximum, HasNoIndexWhenEverythingIsMasked) {
  const std::vector<float> row(2048, -kInfinity);
  EXPECT_EQ(find_maximum(row).index, -1);
  EXPECT_TRUE(find_maximum(row).is_numeric);
  EXPECT_EQ(find_maximum({}).index, -1);
}

TEST(ChanceOfLargest, IsItsShareOfTheSoftmax) {
  for (const std::size_t size : {1u, 2u, 63u, 64u, 65u, 1000u}) {
    const std::vector<float> row = normal_row(size, 3.0f, static_cast<std::uint32_t>(size));
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float x : row) sum += std::exp(x - largest);
    EXPECT_NEAR(chance_of_largest(row), 1 / sum, 1e-4) << size;
  }
  EXPECT_EQ(chance_of_largest(std::vector<float>(70, -kInfinity)), 0);
  EXPECT_EQ(chance_of_largest({}), 0);
}

TEST(SelectTopK, EqualsTheStartOfTheSortedRow) {
  std::vector<Candidate> got;
  for (const std::size_t size : {1u, 63u, 64u, 65u, 1000u, 5000u}) {
    for (std::uint32_t seed = 0; seed < 8; ++seed) {
      for (const int k : {1, 2, 20, 64, 999, 1000, 6000, std::numeric_limits<int>::max()}) {
        const std::vector<float> row = seed % 2 == 0 ? tied_row(size, 6, seed) : normal_row(size, 3.0f, seed);
        std::vector<Candidate> expected = ranked_by_sorting(row);
        expected.resize(std::min(expected.size(), static_cast<std::size_t>(k)));
        select_top_k(row, k, got);
        expect_same(got, expected);
      }
    }
  }
}

TEST(SelectTopK, ServesRisingAndFallingRows) {
  std::vector<float> rising(4000);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
  std::vector<float> falling(rising.rbegin(), rising.rend());
  std::vector<Candidate> got;
  for (const std::vector<float>& row : {rising, falling}) {
    std::vector<Candidate> expected = ranked_by_sorting(row);
    expected.resize(20);
    select_top_k(row, 20, got);
    expect_same(got, expected);
  }
}

TEST(Rank, RadixSortAgreesWithTheComparison) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    const std::vector<float> row = seed % 2 == 0 ? tied_row(10000, 9, seed) : normal_row(10000, 1e10f, seed);
    std::vector<Candidate> got;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] != -kInfinity) got.push_back({row[i], static_cast<std::int32_t>(i)});
    }
    rank(got);
    expect_same(got, ranked_by_sorting(row));
  }
}

TEST(SelectTopP, EqualsRankingTheWholeRow) {
  std::vector<Candidate> got;
  for (const std::size_t size : {5u, 900u, 1024u, 5000u, 60000u}) {
    for (const float deviation : {0.0f, 0.1f, 1.0f, 4.0f, 30.0f}) {
      for (const double top_p : {1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1.0 - 1e-15}) {
        const std::vector<float> row = normal_row(size, deviation, static_cast<std::uint32_t>(size));
        const SoftmaxScale scale{static_cast<double>(find_maximum(row).value), 0.7};
        std::vector<Candidate> expected = ranked_by_sorting(row);
        keep_top_p(scale, top_p, expected);
        select_top_p(row, scale, top_p, got);
        expect_same(got, expected);
        if (testing::Test::HasFatalFailure()) {
          FAIL() << size << " deviation " << deviation << " top_p " << top_p;
        }
      }
    }
  }
}

TEST(SelectTopP, DecidesExactBoundariesInRankOrder) {
  // 4096 equal weights: p = j / 4096 is reached by exactly j candidates, where a sum in another order could
  // be off by one. The two largest make the total no power of two.
  std::vector<float> row(4096, 1.0f);
  row[77] = 1.5f;
  const SoftmaxScale scale{1.5, 1.0};
  std::vector<Candidate> got;
  for (int j = 1; j < 4096; j += 111) {
    std::vector<Candidate> expected = ranked_by_sorting(row);
    double total = 0;
    for (const Candidate& candidate : expected) total += f64_exp(scale.exponent(candidate.value));
    double mass = 0;
    for (int i = 0; i < j; ++i) mass += f64_exp(scale.exponent(expected[static_cast<std::size_t>(i)].value));
    const double top_p = mass / total;
    keep_top_p(scale, top_p, expected);
    select_top_p(row, scale, top_p, got);
    expect_same(got, expected);
  }
}

TEST(KeepTopP, TakesTheSmallestPrefixWithTheMass) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const float step = static_cast<float>(std::log(2.0));
  const SoftmaxScale scale{0.0, 1.0};
  const auto kept = [&](double top_p) {
    std::vector<Candidate> ranked = {{0, 3}, {-step, 0}, {-2 * step, 1}, {-2 * step, 2}};
    keep_top_p(scale, top_p, ranked);
    return ranked.size();
  };
  EXPECT_EQ(kept(1e-12), 1u);
  EXPECT_EQ(kept(0.4999), 1u);
  EXPECT_EQ(kept(0.51), 2u);
  EXPECT_EQ(kept(0.74), 2u);
  EXPECT_EQ(kept(0.76), 3u);
  EXPECT_EQ(kept(0.9), 4u);
}

TEST(KeepTopP, StopsAtAPrefixWithExactlyTheMass) {
  const SoftmaxScale scale{1.0, 1.0};
  for (const std::size_t kept : {1u, 2u, 3u, 4u}) {
    std::vector<Candidate> ranked = {{1, 0}, {1, 1}, {1, 2}, {1, 3}};
    keep_top_p(scale, static_cast<double>(kept) / 4, ranked);
    EXPECT_EQ(ranked.size(), kept);
  }
}

TEST(RankedMass, LeavesOutOnlyWhatCannotChangeTheSum) {
  const std::vector<float> row = normal_row(3000, 25.0f, 8);
  const SoftmaxScale scale{static_cast<double>(find_maximum(row).value), 1.0};
  double expected = 0;
  for (const Candidate& candidate : ranked_by_sorting(row))
    expected += f64_exp(scale.exponent(candidate.value));
  std::vector<Candidate> scratch;
  EXPECT_EQ(ranked_mass(row, scale, scratch), expected);
  EXPECT_LT(scratch.size(), row.size())
      << "the row must hold vanishing weights for this test to say something";
}

}  // namespace
}  // namespace mererun
