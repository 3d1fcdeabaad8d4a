#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/quantization.h"

namespace mererun {

/// Where the rows of one quantised matrix go: code streams of `in * bits / 8` bytes a row, and one BF16 scale
/// and bias a group. All row-major, without padding.
struct AffineRows {
  std::byte* codes = nullptr;
  std::uint16_t* scales = nullptr;
  std::uint16_t* biases = nullptr;
};

/// Quantises rows of finite f32 values: w is about s * q + beta, with unsigned codes q of `format.bits` bits.
///
/// values  [rows, in], in a multiple of format.group
///
/// Per group, in f32, with n = 2^bits - 1: s = max((max - min) / n, 1e-7); the entry of largest magnitude is
/// `edge` (the largest one when both ends are equally far), s is negative when edge is the maximum; q0 =
/// rint(edge / s); if q0 is not 0, s = edge / q0 and beta = edge, else beta = 0; q = clamp(rint((w - beta) /
/// s), 0, n). Codes are chosen with s and beta before these are rounded to BF16. Ties go to even.
///
/// Source: the affine quantiser of MLX (`mlx.core.quantize`, CPU), byte for byte.
/// Thread-safety: thread-safe.
void quantise_affine_rows(std::span<const float> values, AffineFormat format, const AffineRows& out);

/// How far stored weights lie from the values they stand for.
struct QuantisationError {
  std::uint64_t weights = 0;
  double squared_error = 0;      // sum of (w - s q - beta)^2
  double squared_reference = 0;  // sum of w^2

  void add(const QuantisationError& other);
  /// sqrt(squared_error / squared_reference); 0 when all weights are 0.
  double relative() const;
};

/// Reads quantised rows back and compares them with the values they were made from.
///
/// Returns the sums; sets `worst` to the flat index of the first weight that lies further from its value than
/// the format allows: half a step, or what the clamp of the code cuts off, plus the BF16 rounding of scale
/// and bias; -1 if there is none.
QuantisationError compare_affine_rows(std::span<const float> values, AffineFormat format,
                                      const AffineRows& stored, std::int64_t& worst);

}  // namespace mererun
