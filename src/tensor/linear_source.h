#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace mererun {

enum class WeightFormat { kAffine, kDense };

/// One linear layer's weight exactly as the checkpoint stores it: borrowed from the mapping, unconverted.
/// A stack of experts is one source with `experts` > 1 and a leading axis on every array. Row r of expert e
/// is row e * rows_between_experts() + r of each array: fused gate/up stacks interleave two sources per
/// expert.
///
/// Affine (MLX): w[r, i] = scales[r, i / group] * q[r, i] + biases[r, i / group]; q is an unsigned `bits`-bit
/// code, element i at bits [bits*i, bits*(i+1)) of the row's little-endian bit stream.
/// The arrays may be unaligned: read them with memcpy.
struct LinearSource {
  std::string name;  // module path, for messages
  WeightFormat format = WeightFormat::kDense;
  int experts = 1;
  int out = 0;
  int in = 0;
  std::int64_t expert_stride = 0;  // rows between the starts of two experts; 0: `out`
  int bits = 0;                    // affine: 2, 3, 4, 5, 6 or 8
  int group = 0;                   // affine: 32, 64 or 128; divides `in`
  DType dtype = DType::kBF16;      // dense: of the weight; affine: of scales and biases (BF16, F16 or F32)
  const void* weight = nullptr;    // affine: U32 [experts, out, in * bits / 32]; dense: [experts, out, in]
  const void* scales = nullptr;    // affine: [experts, out, in / group]
  const void* biases = nullptr;    // affine: [experts, out, in / group]

  bool empty() const { return weight == nullptr; }
  std::int64_t rows_between_experts() const { return expert_stride != 0 ? expert_stride : out; }
  /// Bytes of one stored row of the weight and of the scales (equal to that of the biases; 0 for dense).
  std::int64_t weight_row_bytes() const {
    return format == WeightFormat::kAffine
               ? static_cast<std::int64_t>(in) * bits / 8
               : static_cast<std::int64_t>(in) * static_cast<std::int64_t>(size_of(dtype));
  }
  std::int64_t scale_row_bytes() const {
    return format == WeightFormat::kAffine
               ? static_cast<std::int64_t>(in / group) * static_cast<std::int64_t>(size_of(dtype))
               : 0;
  }
  /// Bytes that all rows of all experts occupy: weight, scales and biases.
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(experts) * out * (weight_row_bytes() + 2 * scale_row_bytes());
  }
};

}  // namespace mererun
