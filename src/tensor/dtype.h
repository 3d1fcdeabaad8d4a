#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mererun {

enum class DType { kF32, kBF16, kF16, kI64, kI32, kI16, kI8, kU32, kU8, kF8E4M3 };

/// Bytes of one element.
std::size_t size_of(DType dtype);
/// Safetensors spelling ("BF16").
std::string_view name_of(DType dtype);

/// Widens bfloat16 bits to float, exactly.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds a float to bfloat16 bits, to nearest even; NaN stays NaN (quiet).
inline std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// Widens IEEE binary16 bits to float, exactly (subnormals, infinities and NaN included).
float f16_to_f32(std::uint16_t bits);

}  // namespace mererun
