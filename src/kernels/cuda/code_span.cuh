#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline constexpr int kCodeSpan = 128;  // elements a warp codes at once: at least one whole group

/// Both planes of a lane's four elements, and the sides of their group.
struct CodedLane {
  std::uint32_t high, low;
  float2 sides;
};

/// Codes kCodeSpan elements by one warp, four a lane; group / 4 lanes share a group.
__device__ __forceinline__ CodedLane code_lane(const float (&values)[4], int group) {
  std::uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t u = numerics::bits_of(values[j]) & 0x7fffffffu;
    most = u > most ? u : most;
  }
  const numerics::CodeScale scale = numerics::code_scale(warp_max(most, group / 4));
  CodedLane coded{0, 0, {}};
  int sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int code = numerics::code_of(values[j], scale);
    const int upper = (code + 128) >> 8;
    sum += code;
    coded.high |= (static_cast<std::uint32_t>(upper) & 0xffu) << (8 * j);
    coded.low |= (static_cast<std::uint32_t>(code - 256 * upper) & 0xffu) << (8 * j);
  }
  sum = warp_add(sum, group / 4);
  coded.sides = make_float2(scale.divisor, scale.scale * static_cast<float>(sum));
  return coded;
}

/// Stores a lane's codes of elements i .. i + 3 of a row in CodeOrder::kRows. The vectors of a group are the
/// high planes of the four quarters, then the low ones; a word for each 16 elements.
__device__ __forceinline__ void store_in_row(uint4* codes, float2* sides, int i, const CodedLane& coded) {
  auto* words = reinterpret_cast<std::uint32_t*>(codes + i / 64 * 8 + i % 16 / 4) + i % 64 / 16;
  words[0] = coded.high;
  words[16] = coded.low;
  if (i % 64 == 0) sides[i / 64] = coded.sides;
}

/// Codes elements [first, first + 128) of row t by one warp, four a lane; group / 4 lanes share a group.
/// `values` holds elements first + 4 * lane and the three after it; `live` is false past the row's end (whole
/// groups).
__device__ __forceinline__ void code_span(const ActivationCodes& to, int t, int first,
                                          const float (&values)[4], bool live) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int i = first + 4 * lane;
  const CodedLane coded = code_lane(values, to.group);
  if (!live) return;
  if (to.order == CodeOrder::kRows) {
    store_in_row(to.row_codes(t), to.row_sides(t), i, coded);
    return;
  }

  const int block = t / kBlockColumns;
  const int c = t % kBlockColumns;
  const bool planes = to.order == CodeOrder::kPlanes;
  const int columns = planes ? to.plane_columns() : to.columns_of(block);
  const int half = i % 32 / 16, quarter = i % 16 / 4;
  auto* words = reinterpret_cast<std::uint32_t*>(to.codes + to.codes_offset(block) +
                                                 static_cast<std::int64_t>(i / 32) * columns * 4);
  if (planes) {
    words += 4 * c + quarter;
    words[4 * columns * half] = coded.high;
    words[4 * columns * (2 + half)] = coded.low;
  } else {
    words += 16 * c + 4 * quarter;
    words[half] = coded.high;
    words[2 + half] = coded.low;
  }
  if (i % to.group == 0) {
    const int padded = (columns + 1) & ~1;
    float2* side = to.sides + to.sides_offset(block) + static_cast<std::int64_t>(i / to.group) * padded + c;
    *side = coded.sides;
    if (c == columns - 1 && padded != columns) side[1] = make_float2(0, 0);
  }
}

}  // namespace mererun::cuda
