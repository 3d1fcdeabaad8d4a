#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

/// Columns (activation rows) a block of codes holds; one launch of a linear kernel works on one block.
inline constexpr int kBlockColumns = 32;

/// Activation rows as int16 codes in the order the matrix instruction takes its second operand.
///
/// Rows come in blocks of 32. Inside a block of C rows, for each 32 elements ("step") and row, four 16-byte
/// vectors, one per lane quarter q: high planes of elements 4q..4q+3 and 16+4q..16+4q+3, then the low planes
/// of the same (code = 256 * high + low). Sides: per group and row {d, D}, rows padded to an even count.
struct ActivationCodes {
  uint4* codes = nullptr;   // [block][in / 32][C][4]
  float2* sides = nullptr;  // [block][in / group][C rounded up to even]
  int rows = 0, in = 0, group = 0;

  __host__ __device__ int columns_of(int block) const {
    const int left = rows - block * kBlockColumns;
    return left < kBlockColumns ? left : kBlockColumns;
  }
  /// 16-byte vectors of both arrays, from the first row to the last.
  __host__ __device__ int code_vectors() const { return in / 32 * rows * 4; }
  __host__ __device__ int side_vectors() const {
    return in / group * (rows / kBlockColumns * kBlockColumns + ((rows % kBlockColumns + 1) & ~1)) / 2;
  }
  __host__ __device__ std::int64_t codes_offset(int block) const {
    return static_cast<std::int64_t>(block) * (in / 32) * kBlockColumns * 4;
  }
  __host__ __device__ std::int64_t sides_offset(int block) const {
    return static_cast<std::int64_t>(block) * (in / group) * kBlockColumns;
  }
};

/// Bytes of both arrays for `rows` rows.
std::size_t codes_bytes(int rows, int in);
std::size_t sides_bytes(int rows, int in, int group);

/// Rounds rows x [rows, in] f32 into `to` (whose rows, in and group say how).
void run_code_rows(const LaunchContext& context, const TensorView& x, const ActivationCodes& to);

}  // namespace mererun::cuda
