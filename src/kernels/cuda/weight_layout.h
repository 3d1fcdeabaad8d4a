#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/affine_view.h"
#include "tensor/dtype.h"
#include "tensor/linear_source.h"

namespace mererun::cuda {

// What a weight takes on the GPU, from its shape alone: for the upload, and for plans made before it.

inline constexpr std::size_t kUploadBytes = std::size_t{64} << 20;  // staging beside the weights
inline constexpr std::size_t kAlignment = 256;

constexpr std::size_t padded_bytes(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The records of an affine source; `records` is not set.
inline AffineView affine_layout(const LinearSource& s) {
  AffineView view;
  view.experts = s.experts;
  view.out = s.out;
  view.in = s.in;
  view.group = s.group;
  view.stored_bits = s.bits <= 4 ? 4 : 8;
  view.wide_sides = s.dtype != DType::kBF16;
  return view;
}

/// Bytes of a linear weight: affine ones repacked, dense ones as stored.
inline std::size_t linear_bytes(const LinearSource& s) {
  if (s.format == WeightFormat::kDense) {
    return static_cast<std::size_t>(s.experts) * static_cast<std::size_t>(s.out) *
           static_cast<std::size_t>(s.weight_row_bytes());
  }
  return static_cast<std::size_t>(s.experts * affine_layout(s).expert_bytes());
}

/// Bytes of an embedding: its arrays as stored, each padded.
inline std::size_t embedding_bytes(const LinearSource& s) {
  const auto rows = static_cast<std::size_t>(s.out);
  return padded_bytes(rows * static_cast<std::size_t>(s.weight_row_bytes())) +
         2 * padded_bytes(rows * static_cast<std::size_t>(s.scale_row_bytes()));
}

}  // namespace mererun::cuda
