#include "base/f64_trig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace mererun {
namespace {

/// Error in units of 2^-52 of the larger of the result and 2^-30.
double error_of(double got, double truth) {
  return std::fabs(got - truth) / (std::max(std::fabs(truth), 0x1p-30) * 0x1p-52);
}

TEST(F64SinCos, AgreesWithTheMathLibrary) {
  std::mt19937_64 random(7);
  double worst = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    // Angles as the rope table has them: f32 values over all magnitudes up to 2^20.
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const double scale = std::ldexp(1.0, static_cast<int>(random() % 30) - 9);
    const double x = static_cast<float>((2 * unit - 1) * std::min(scale, 0x1p20));
    const SinCos got = f64_sin_cos(x);
    worst = std::max({worst, error_of(got.sin, std::sin(x)), error_of(got.cos, std::cos(x))});
  }
  EXPECT_LT(worst, 2.0);
}

TEST(F64SinCos, IsRightNearMultiplesOfHalfPi) {
  double worst = 0;
  for (int n = 1; n < 667'000; n += 7) {
    const double near = n * 1.5707963267948966;
    for (double x : {static_cast<double>(static_cast<float>(near)), near}) {
      const SinCos got = f64_sin_cos(x);
      worst = std::max({worst, error_of(got.sin, std::sin(x)), error_of(got.cos, std::cos(x))});
    }
  }
  EXPECT_LT(worst, 2.0);
}

TEST(F64SinCos, KeepsZeroAndNan) {
  EXPECT_EQ(f64_sin_cos(0.0).sin, 0.0);
  EXPECT_EQ(f64_sin_cos(0.0).cos, 1.0);
  EXPECT_TRUE(std::isnan(f64_sin_cos(std::numeric_limits<double>::quiet_NaN()).cos));
}

TEST(F32Pow, IsTheRoundedPower) {
  for (float base : {1e4f, 5e5f, 1e6f, 1e7f}) {
    for (int i = 0; i < 256; ++i) {
      const float exponent = static_cast<float>(i) / 256.0f;
      EXPECT_EQ(f32_pow(base, exponent),
                static_cast<float>(std::pow(static_cast<long double>(base), exponent)))
          << base << "^" << exponent;
    }
  }
}

}  // namespace
}  // namespace mererun
