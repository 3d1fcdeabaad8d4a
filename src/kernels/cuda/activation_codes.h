#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/expert_list.h"
#include "kernels/cuda/launch.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

enum class CodeOrder { kLanes, kRows, kPlanes };

/// Activation rows as int16 codes in an order that matrix instructions take; code = 256 * high + low. Rows
/// come in blocks of 32; for each 32 elements ("step") a row has four 16-byte vectors, and for each group the
/// sides {d, D}.
///
/// kLanes, for those of a warp: a vector per lane quarter q: high planes of elements 4q..4q+3 and
/// 16+4q..16+4q+3, then the low planes of the same. The four vectors of a row are neighbours; a block of C
/// rows has room for C, sides for the next even count.
///
/// kRows, for few rows in groups of 64: a row's groups one after the other, whatever the rows beside it. A
/// group has four vectors of high planes and four of low ones, one for each quarter q: elements 4q..4q+3,
/// 16+4q.., 32+4q.. and 48+4q... Sides of a row are neighbours, with room for an even count.
///
/// kPlanes, for those of a warpgroup: vectors of the high planes of elements 0..15, of 16..31, and of the low
/// planes of the same. The first vectors of a block's rows are neighbours, then come the second ones; every
/// block has room for plane_columns() rows, so that a step and the sides of a group are one piece each.
struct ActivationCodes {
  uint4* codes = nullptr;   // [block][in / 32] of [C][4] or [4][32]; [row][in / 64][2][4]
  float2* sides = nullptr;  // [block][in / group] of [C rounded up to even] or [32]; [row][side_stride()]
  int rows = 0, in = 0, group = 0;
  CodeOrder order = CodeOrder::kLanes;

  /// Whether the linear behind what writes them starts early: it pays for a few long rows.
  __host__ __device__ bool starts_early() const { return rows <= kMostNarrowRows && in >= 4096; }

  __host__ __device__ int columns_of(int block) const {
    const int left = rows - block * kBlockColumns;
    return left < kBlockColumns ? left : kBlockColumns;
  }
  /// kPlanes: rows that a block has room for; half a block where no more are there.
  __host__ __device__ int plane_columns() const {
    return rows <= kBlockColumns / 2 ? kBlockColumns / 2 : kBlockColumns;
  }
  /// 16-byte vectors of both arrays, from the first row to the last.
  __host__ __device__ int code_vectors() const { return in / 32 * rows * 4; }
  __host__ __device__ int side_vectors() const {
    return in / group * (rows / kBlockColumns * kBlockColumns + ((rows % kBlockColumns + 1) & ~1)) / 2;
  }
  /// kRows: entries between the sides of rows; codes and sides of a row.
  __host__ __device__ int side_stride() const { return (in / group + 1) & ~1; }
  __host__ __device__ uint4* row_codes(std::int64_t t) const { return codes + t * (in / 64 * 8); }
  __host__ __device__ float2* row_sides(std::int64_t t) const { return sides + t * side_stride(); }

  /// kRows: 16-byte vectors of all sides.
  __host__ __device__ int row_side_vectors() const { return rows * side_stride() / 2; }

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
/// The same for the rows that the entries of a list read, entry e (of at most 32) as block e of `to`.
void run_code_entries(const LaunchContext& context, const TensorView& x, const ExpertList& list,
                      ExpertRows rows, const ActivationCodes& to);

}  // namespace mererun::cuda
