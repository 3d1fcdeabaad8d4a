#include "convert/quantise_affine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace mererun {
namespace {

constexpr int kMaxGroup = 128;

struct GroupRange {
  float low = 0;
  float high = 0;
};

/// Eight running extremes: the plain loop would not become vector code, whose order NaN could change.
GroupRange range_of(const float* values, int count) {
  std::array<float, 8> low;
  std::array<float, 8> high;
  std::copy_n(values, 8, low.begin());
  std::copy_n(values, 8, high.begin());
  for (int i = 8; i < count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) {
      const float value = values[static_cast<std::size_t>(i) + j];
      low[j] = value < low[j] ? value : low[j];
      high[j] = value > high[j] ? value : high[j];
    }
  }
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

struct GroupCode {
  float scale = 0;
  float bias = 0;
};

GroupCode choose_code(GroupRange range, int bits) {
  const float steps = static_cast<float>((1 << bits) - 1);
  const bool from_low = std::abs(range.low) > std::abs(range.high);
  float scale = std::max((range.high - range.low) / steps, 1e-7f);
  if (!from_low) scale = -scale;
  const float edge = from_low ? range.low : range.high;
  const float zero_code = std::nearbyint(edge / scale);
  if (zero_code == 0.0f) return {scale, 0.0f};
  return {edge / zero_code, edge};
}

/// Codes of one group. Clamping to [0, n] before rounding gives the same integer as after it, and adding 2^23
/// to a value that small rounds it to the nearest integer, ties to even.
void choose_codes(const float* values, int count, GroupCode code, int bits, std::uint8_t* codes) {
  constexpr float kRounder = 8388608.0f;
  const float top = static_cast<float>((1 << bits) - 1);
  std::array<float, kMaxGroup> rounded;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    float q = (values[i] - code.bias) / code.scale;
    q = q < 0.0f ? 0.0f : q;
    q = q > top ? top : q;
    rounded[i] = (q + kRounder) - kRounder;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    codes[i] = static_cast<std::uint8_t>(rounded[i]);
}

/// Eight codes fill `bits` whole bytes of the stream, least significant bit first.
void pack_codes(const std::uint8_t* codes, int count, int bits, std::byte* stream) {
  for (int i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= static_cast<std::uint64_t>(codes[i + j]) << (j * bits);
    for (int b = 0; b < bits; ++b) *stream++ = static_cast<std::byte>(word >> (8 * b));
  }
}

void unpack_codes(const std::byte* stream, int count, int bits, std::uint8_t* codes) {
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (int i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    for (int b = 0; b < bits; ++b) word |= static_cast<std::uint64_t>(*stream++) << (8 * b);
    for (int j = 0; j < 8; ++j) codes[i + j] = static_cast<std::uint8_t>((word >> (j * bits)) & mask);
  }
}

/// Calls visit(first value of a group, its byte in the code stream, its index) for every group.
template <typename Visit>
void for_each_group(std::size_t count, AffineFormat format, const Visit& visit) {
  const auto group = static_cast<std::size_t>(format.group);
  const std::size_t group_bytes = group * static_cast<std::size_t>(format.bits) / 8;
  for (std::size_t g = 0; g < count / group; ++g) visit(g * group, g * group_bytes, g);
}

}  // namespace

void quantise_affine_rows(std::span<const float> values, AffineFormat format, const AffineRows& out) {
  std::array<std::uint8_t, kMaxGroup> codes;
  for_each_group(values.size(), format, [&](std::size_t first, std::size_t byte, std::size_t index) {
    const float* group = values.data() + first;
    const GroupCode code = choose_code(range_of(group, format.group), format.bits);
    choose_codes(group, format.group, code, format.bits, codes.data());
    pack_codes(codes.data(), format.group, format.bits, out.codes + byte);
    out.scales[index] = f32_to_bf16(code.scale);
    out.biases[index] = f32_to_bf16(code.bias);
  });
}

void QuantisationError::add(const QuantisationError& other) {
  weights += other.weights;
  squared_error += other.squared_error;
  squared_reference += other.squared_reference;
}

double QuantisationError::relative() const {
  return squared_reference > 0 ? std::sqrt(squared_error / squared_reference) : 0.0;
}

QuantisationError compare_affine_rows(std::span<const float> values, AffineFormat format,
                                      const AffineRows& stored, std::int64_t& worst) {
  constexpr double kBf16 = 1.0 / 256;  // relative rounding of a BF16 number, twice over
  const double top = (1 << format.bits) - 1;
  QuantisationError error;
  error.weights = values.size();
  worst = -1;
  std::array<std::uint8_t, kMaxGroup> codes;
  for_each_group(values.size(), format, [&](std::size_t first, std::size_t byte, std::size_t index) {
    unpack_codes(stored.codes + byte, format.group, format.bits, codes.data());
    const double scale = bf16_to_f32(stored.scales[index]);
    const double bias = bf16_to_f32(stored.biases[index]);
    const double step = std::abs(scale);
    const double slack = kBf16 * (step * top + std::abs(bias)) + 1e-12;
    for (std::size_t i = 0; i < static_cast<std::size_t>(format.group); ++i) {
      const double value = values[first + i];
      const double difference = std::abs(value - (scale * codes[i] + bias));
      const double cut = std::abs(value - bias) - step * top;
      if (worst < 0 && !(difference <= std::max(0.5 * step, cut) + slack))
        worst = static_cast<std::int64_t>(first + i);
      error.squared_error += difference * difference;
      error.squared_reference += value * value;
    }
  });
  return error;
}

}  // namespace mererun
