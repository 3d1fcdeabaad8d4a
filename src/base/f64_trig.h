#pragma once

#include <bit>
#include <cstdint>

#include "base/f64_math.h"

namespace mererun {

struct SinCos {
  double sin;
  double cos;
};

namespace f64_detail {

// pi / 2 in three parts; the first two have 33 bits, so that their product with a count below 2^20 is exact.
inline constexpr double kHalfPi1 = 0x1.921fb544p+0;
inline constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
inline constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

/// sin(r + tail) for |r| <= pi / 4, |tail| below an ulp of r. Taylor series to r^17.
constexpr double sin_kernel(double r, double tail) {
  const double z = r * r;
  double series = 1.0 / 355687428096000.0;
  series = -1.0 / 1307674368000.0 + z * series;
  series = 1.0 / 6227020800.0 + z * series;
  series = -1.0 / 39916800.0 + z * series;
  series = 1.0 / 362880.0 + z * series;
  series = -1.0 / 5040.0 + z * series;
  series = 1.0 / 120.0 + z * series;
  series = -1.0 / 6.0 + z * series;
  return r + ((r * z) * series + tail * (1.0 - 0.5 * z));
}

/// cos(r + tail), likewise. Taylor series to r^16.
constexpr double cos_kernel(double r, double tail) {
  const double z = r * r;
  double series = 1.0 / 20922789888000.0;
  series = -1.0 / 87178291200.0 + z * series;
  series = 1.0 / 479001600.0 + z * series;
  series = -1.0 / 3628800.0 + z * series;
  series = 1.0 / 40320.0 + z * series;
  series = -1.0 / 720.0 + z * series;
  series = 1.0 / 24.0 + z * series;
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + ((z * z) * series - r * tail));
}

}  // namespace f64_detail

/// Sine and cosine of x radians in double, |x| <= 2^20, from correctly rounded +, -, * and integer operations
/// only, in one written order: the same bits on every platform. Error below 2^-51 of the larger of the result
/// and 2^-30. NaN -> NaN. Needs a build without contraction of multiply-adds. Thread-safe.
///
/// Source: x = n pi/2 + r with pi/2 in three parts (Cody and Waite), Taylor series of r.
constexpr SinCos f64_sin_cos(double x) {
  using namespace f64_detail;
  if (x != x) return {x, x};
  const double shifted = x * kTwoOverPi + kRoundingShift;
  const double n = shifted - kRoundingShift;
  const auto quadrant = static_cast<unsigned>(std::bit_cast<std::uint64_t>(shifted) & 3u);
  const double first = x - n * kHalfPi1;  // exact
  const double step = n * kHalfPi2;       // exact
  const double coarse = first - step;
  const double lost = (first - coarse) - step;
  const double tail_of = lost - n * kHalfPi3;
  const double r = coarse + tail_of;
  const double tail = (coarse - r) + tail_of;
  const double s = sin_kernel(r, tail);
  const double c = cos_kernel(r, tail);
  switch (quadrant) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

/// base^exponent for base > 0, rounded to f32 from a double with error below 2^-48 for results in f32's
/// range: the correctly rounded power, up to one case in 10^6.
constexpr float f32_pow(float base, float exponent) {
  return static_cast<float>(f64_exp(static_cast<double>(exponent) * f64_ln(static_cast<double>(base))));
}

}  // namespace mererun
