#include "base/f64_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace mererun {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Error of `got` against the long double reference, in ulps of the correctly rounded double.
double ulps(double got, long double reference) {
  const auto rounded = static_cast<double>(reference);
  if (rounded == 0.0) return got == 0.0 ? 0.0 : kInfinity;
  const double ulp = std::nextafter(std::fabs(rounded), kInfinity) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - reference) /
                             static_cast<long double>(ulp));
}

TEST(F64Exp, StaysBelowOneUlpOverTheWholeRange) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double range = i % 4 == 0 ? 700.0 : i % 4 == 1 ? 40.0 : i % 4 == 2 ? 1.0 : 1e-6;
    const double x = std::uniform_real_distribution<double>(-range, range)(random);
    const double got = f64_exp(x);
    worst = std::max(worst, ulps(got, std::exp(static_cast<long double>(x))));
    ASSERT_EQ(got, f64_exp_in_range(x)) << x;
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.4);  // the bound is measured, not trivially met
}

TEST(F64Exp, RoundsSubnormalResultsToWithinTwoUnits) {
  for (double x = -745.13; x < -708.0; x += 0.0137) {
    ASSERT_LE(ulps(f64_exp(x), std::exp(static_cast<long double>(x))), 2.0) << x;
  }
}

TEST(F64Exp, TreatsEdgesAsTheStandardFunction) {
  EXPECT_EQ(f64_exp(0.0), 1.0);
  EXPECT_EQ(f64_exp(-0.0), 1.0);
  EXPECT_EQ(f64_exp(kInfinity), kInfinity);
  EXPECT_EQ(f64_exp(-kInfinity), 0.0);
  EXPECT_TRUE(std::isnan(f64_exp(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(f64_exp(709.7827), std::exp(709.7827)) << "close to the largest finite result";
  EXPECT_EQ(f64_exp(709.783), kInfinity);
  EXPECT_EQ(f64_exp(1e300), kInfinity);
  EXPECT_EQ(f64_exp(-745.2), 0.0);
  EXPECT_EQ(f64_exp(-745.0), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(f64_exp(std::numeric_limits<double>::denorm_min()), 1.0);
}

TEST(F64Ln, StaysBelowOneUlpOverTheWholeRange) {
  std::mt19937_64 random(2);
  double worst = 0;
  const auto check = [&worst](double x) {
    worst = std::max(worst, ulps(f64_ln(x), std::log(static_cast<long double>(x))));
  };
  for (int i = 0; i < 400000; ++i) {
    // Every positive bit pattern, then the neighbourhoods where cancellation would show: 1, sqrt(1/2),
    // sqrt(2).
    check(std::bit_cast<double>(random() % 0x7ff0000000000000ULL));
    const double near = std::uniform_real_distribution<double>(-1e-3, 1e-3)(random);
    check(1.0 + near);
    check(1.0 + near * 1e-9);
    check(0.70710678118654752 + near);
    check(1.4142135623730951 + near);
    check(std::uniform_real_distribution<double>(0.0, 1.0)(random));
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.4);
}

TEST(F64Ln, TreatsEdgesAsTheStandardFunction) {
  EXPECT_EQ(f64_ln(1.0), 0.0);
  EXPECT_FALSE(std::signbit(f64_ln(1.0)));
  EXPECT_EQ(f64_ln(0.0), -kInfinity);
  EXPECT_EQ(f64_ln(-0.0), -kInfinity);
  EXPECT_EQ(f64_ln(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(f64_ln(-1.0)));
  EXPECT_TRUE(std::isnan(f64_ln(-kInfinity)));
  EXPECT_TRUE(std::isnan(f64_ln(std::numeric_limits<double>::quiet_NaN())));
  for (const double x : {std::numeric_limits<double>::denorm_min(), 3e-310,
                         std::numeric_limits<double>::min(), std::numeric_limits<double>::max()}) {
    EXPECT_LT(ulps(f64_ln(x), std::log(static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(F64Math, KeepsItsBits) {
  // Any platform must reproduce these; a change here changes sampled text.
  std::uint64_t hash = 0;
  for (int i = 1; i <= 20000; ++i) {
    const double u = i / 20001.0;
    hash = std::rotl(hash, 7) ^ std::bit_cast<std::uint64_t>(f64_ln(u)) ^
           (std::bit_cast<std::uint64_t>(f64_exp(-40.0 * u)) * 0x9e3779b97f4a7c15ULL);
  }
  EXPECT_EQ(hash, 10369956423337396236ULL);
}

TEST(F64Math, EvaluatesAtCompileTimeToTheSameBits) {
  constexpr double kExp = f64_exp(-1.25);
  constexpr double kLn = f64_ln(0.3);
  volatile double a = -1.25;
  volatile double b = 0.3;
  EXPECT_EQ(kExp, f64_exp(a));
  EXPECT_EQ(kLn, f64_ln(b));
}

}  // namespace
}  // namespace mererun
