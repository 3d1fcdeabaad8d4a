#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace mererun {

/// Whether numbers of a checkpoint that are not quantised may have this type: BF16, F16 or F32.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

/// Element `index` of an array of one of these types, widened exactly. `data` need not be aligned.
inline float element_f32(DType dtype, const std::byte* data, std::int64_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, data + index * 4, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + index * 2, sizeof(bits));
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace mererun
