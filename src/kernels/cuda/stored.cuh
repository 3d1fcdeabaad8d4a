#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/numerics.h"
#include "tensor/dtype.h"

namespace mererun::cuda {

/// Element i of an array of BF16, F16 or F32, widened exactly.
__device__ __forceinline__ float widened(const std::uint8_t* array, std::int64_t i, DType dtype) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(array)[i];
  const std::uint16_t half = reinterpret_cast<const std::uint16_t*>(array)[i];
  if (dtype == DType::kBF16) return numerics::from_bits(static_cast<std::uint32_t>(half) << 16);
  return __half2float(__ushort_as_half(half));
}

/// Code i of a row's bit stream: bits [bits * i, bits * (i + 1)), lowest first; at most 8 bits.
__device__ __forceinline__ std::uint32_t stored_code(const std::uint8_t* row, int bits, int i) {
  const std::int64_t bit = static_cast<std::int64_t>(bits) * i;
  const int shift = static_cast<int>(bit & 7);
  std::uint32_t window = row[bit >> 3];
  if (shift + bits > 8) window |= static_cast<std::uint32_t>(row[(bit >> 3) + 1]) << 8;
  return (window >> shift) & ((1u << bits) - 1);
}

}  // namespace mererun::cuda
