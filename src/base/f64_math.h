#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace mererun {

namespace f64_detail {

// ln 2 in two parts: the upper one ends in 21 zero bits, so that its product with an exponent (11 bits) is
// exact.
inline constexpr double kLn2Upper = 0x1.62e42feep-1;
inline constexpr double kLn2Lower = 0x1.a39ef35793c76p-33;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
// Adding it to a number below 2^51 in magnitude rounds that number to an integer, held in the low bits.
inline constexpr double kRoundingShift = 0x1.8p52;

/// 2^n for -1022 <= n <= 1023.
constexpr double power_of_two(std::int64_t n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// Clears the lowest `bits` bits of the significand.
constexpr double clear_low_bits(double x, int bits) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~((std::uint64_t{1} << bits) - 1));
}

/// e^x = scale * 2^exponent with scale in [0.7, 1.5], for |x| < 1500.
struct ScaledExp {
  double scale;
  std::int64_t exponent;
};

constexpr ScaledExp scaled_exp(double x) {
  const double shifted = x * kLog2E + kRoundingShift;
  const double n = shifted - kRoundingShift;
  const double r = (x - n * kLn2Upper) - n * kLn2Lower;  // |r| <= 0.3466
  // The Taylor series to r^13; the first term left out is below 2^-57.
  double tail = 1.0 / 6227020800.0;
  tail = 1.0 / 479001600.0 + r * tail;
  tail = 1.0 / 39916800.0 + r * tail;
  tail = 1.0 / 3628800.0 + r * tail;
  tail = 1.0 / 362880.0 + r * tail;
  tail = 1.0 / 40320.0 + r * tail;
  tail = 1.0 / 5040.0 + r * tail;
  tail = 1.0 / 720.0 + r * tail;
  tail = 1.0 / 120.0 + r * tail;
  tail = 1.0 / 24.0 + r * tail;
  tail = 1.0 / 6.0 + r * tail;
  tail = 0.5 + r * tail;
  const auto exponent = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(shifted)) -
                        static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(kRoundingShift));
  return {1.0 + (r + (r * r) * tail), exponent};
}

}  // namespace f64_detail

/// e^x for -708 <= x <= 709, without the checks of f64_exp and with the same bits.
constexpr double f64_exp_in_range(double x) {
  const f64_detail::ScaledExp e = f64_detail::scaled_exp(x);
  return e.scale * f64_detail::power_of_two(e.exponent);
}

/// e^x in double, from correctly rounded +, -, * and integer operations only, in one written order: the same
/// bits on every platform. Relative error below 2 ulp; a subnormal result is rounded once more. inf -> inf,
/// -inf -> 0, NaN -> NaN. Needs a build without contraction of multiply-adds. Thread-safe.
///
/// Source: x = n ln 2 + r, Taylor series of e^r.
constexpr double f64_exp(double x) {
  if (x != x) return x;
  if (x > 709.79) return std::numeric_limits<double>::infinity();  // the largest finite result is e^709.7827
  if (x < -745.14) return 0.0;                                     // the smallest positive one e^-745.1332
  const f64_detail::ScaledExp e = f64_detail::scaled_exp(x);
  // Two steps: the first is exact, the second overflows to infinity or rounds to a subnormal.
  const std::int64_t half = e.exponent / 2;
  return e.scale * f64_detail::power_of_two(half) * f64_detail::power_of_two(e.exponent - half);
}

/// Natural logarithm in double, from correctly rounded +, -, *, / and integer operations only, in one written
/// order: the same bits on every platform. Relative error below 2 ulp. inf -> inf, +-0 -> -inf, negative ->
/// NaN, NaN -> NaN; subnormals are served. Needs a build without contraction of multiply-adds. Thread-safe.
///
/// Source: x = 2^k m with m in [0.707, 1.414), ln m = 2 artanh(s) with s = (m - 1) / (m + 1), Taylor series.
constexpr double f64_ln(double x) {
  using f64_detail::clear_low_bits;
  if (x != x || x == std::numeric_limits<double>::infinity()) return x;
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (x < 0.0) return std::numeric_limits<double>::quiet_NaN();

  std::int64_t k = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    k = -54;
  }
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kSqrt2Fraction = 0x6a09e667f3bcd;  // fraction bits of sqrt(2)
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t fraction = bits & kFraction;
  const std::uint64_t above = fraction >= kSqrt2Fraction ? 1 : 0;
  k += static_cast<std::int64_t>(bits >> 52) - 1023 + static_cast<std::int64_t>(above);
  const double m = std::bit_cast<double>(fraction | ((1023 - above) << 52));

  const double f = m - 1.0;  // exact
  const double d = m + 1.0;
  // s in two parts. The upper ones have 26 and 27 bits, so their product is exact, and so are d_upper +
  // d_lower = m + 1 and the first difference of `rest`.
  const double d_upper = clear_low_bits(d, 26);
  const double d_lower = m - (d_upper - 1.0);
  const double s = f / d;
  const double s_upper = clear_low_bits(s, 27);
  const double rest = (f - s_upper * d_upper) - s_upper * d_lower;
  const double s_lower = rest / d;

  const double z = s * s;  // <= 0.0295; the first term left out is below 2^-60
  double series = 2.0 / 21.0;
  series = 2.0 / 19.0 + z * series;
  series = 2.0 / 17.0 + z * series;
  series = 2.0 / 15.0 + z * series;
  series = 2.0 / 13.0 + z * series;
  series = 2.0 / 11.0 + z * series;
  series = 2.0 / 9.0 + z * series;
  series = 2.0 / 7.0 + z * series;
  series = 2.0 / 5.0 + z * series;
  series = 2.0 / 3.0 + z * series;

  const auto exponent = static_cast<double>(k);
  const double shift = exponent * f64_detail::kLn2Upper;  // exact, and 0 or larger than 2 s in magnitude
  const double upper = shift + 2.0 * s_upper;
  const double lost = (shift - upper) + 2.0 * s_upper;
  return upper + (lost + (2.0 * s_lower + (s * (z * series) + exponent * f64_detail::kLn2Lower)));
}

}  // namespace mererun
