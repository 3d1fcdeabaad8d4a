#pragma once

#include <string>

#include "tensor/dtype.h"

namespace mererun {

enum class WeightFormat { kAffine, kDense };

/// One linear layer's weight exactly as the checkpoint stores it: borrowed from the mapping, unconverted.
/// A stack of experts is one source with `experts` > 1 and a leading axis on every array.
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
  int bits = 0;                  // affine: 2, 3, 4, 5, 6 or 8
  int group = 0;                 // affine: 32, 64 or 128; divides `in`
  DType dtype = DType::kBF16;    // dense: of the weight; affine: of scales and biases (BF16, F16 or F32)
  const void* weight = nullptr;  // affine: U32 [experts, out, in * bits / 32]; dense: [experts, out, in]
  const void* scales = nullptr;  // affine: [experts, out, in / group]
  const void* biases = nullptr;  // affine: [experts, out, in / group]

  bool empty() const { return weight == nullptr; }
};

}  // namespace mererun
