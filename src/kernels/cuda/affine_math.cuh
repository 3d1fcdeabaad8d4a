#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"

// The arithmetic of the quantised linear on one lane: matrix instruction, operands, groups, joins.

namespace mererun::cuda {

/// D = A * B + C of m16n8k32, exact in int32: 16 weight rows by 8 activation rows. Codes of 4 bits are signed
/// bytes as well as unsigned ones.
template <int kBits>
__device__ __forceinline__ void multiply(int (&d)[4], const std::uint32_t* a, std::uint32_t b0,
                                         std::uint32_t b1, const int (&c)[4]) {
  if constexpr (kBits == 4) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]),
          "r"(c[3]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]),
          "r"(c[3]));
  }
}

/// Scales and biases of the two rows of a lane.
struct RowSides {
  float s0, b0, s1, b1;
};

__device__ __forceinline__ RowSides narrow_sides(uint2 v) {
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
          __uint_as_float(v.y & 0xffff0000u)};
}

__device__ __forceinline__ RowSides read_sides(const std::uint8_t* sides, int quad, bool wide) {
  if (!wide) return narrow_sides(reinterpret_cast<const uint2*>(sides)[quad]);
  const float4 v = reinterpret_cast<const float4*>(sides)[quad];
  return {v.x, v.y, v.z, v.w};
}

/// The first operand of a step from two words of 4-bit codes.
__device__ __forceinline__ void unpack(std::uint32_t (&a)[4], std::uint32_t x, std::uint32_t y) {
  a[0] = x & 0x0f0f0f0fu;
  a[1] = (x >> 4) & 0x0f0f0f0fu;
  a[2] = y & 0x0f0f0f0fu;
  a[3] = (y >> 4) & 0x0f0f0f0fu;
}

/// A record of a group of 64 with narrow sides: a lane's share, in registers. Weights pass through once: they
/// are the first to leave the caches.
template <int kBits>
struct Record {
  uint4 codes[kBits / 4];
  uint2 sides;

  __device__ __forceinline__ void load(const std::uint8_t* from, int lane) {
    if constexpr (kBits == 4) {
      codes[0] = __ldcs(reinterpret_cast<const uint4*>(from) + lane);
    } else {
      codes[0] = __ldcs(reinterpret_cast<const uint4*>(from) + lane);
      codes[1] = __ldcs(reinterpret_cast<const uint4*>(from) + 32 + lane);
    }
    sides = __ldcs(reinterpret_cast<const uint2*>(from + 128 * kBits) + lane / 4);
  }
  /// The same where other warps and blocks read the record too.
  __device__ __forceinline__ void load_shared(const std::uint8_t* from, int lane) {
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i)
      codes[i] = __ldg(reinterpret_cast<const uint4*>(from) + 32 * i + lane);
    sides = __ldg(reinterpret_cast<const uint2*>(from + 128 * kBits) + lane / 4);
  }
  /// The same from shared memory.
  __device__ __forceinline__ void read(const std::uint8_t* from, int lane) {
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i) codes[i] = reinterpret_cast<const uint4*>(from)[32 * i + lane];
    sides = reinterpret_cast<const uint2*>(from + 128 * kBits)[lane / 4];
  }
  /// First operand of step 0 or 1.
  __device__ __forceinline__ void operand(std::uint32_t (&a)[4], int step) const {
    if constexpr (kBits == 4) {
      if (step == 0) {
        unpack(a, codes[0].x, codes[0].y);
      } else {
        unpack(a, codes[0].z, codes[0].w);
      }
    } else {
      a[0] = codes[step].x;
      a[1] = codes[step].y;
      a[2] = codes[step].z;
      a[3] = codes[step].w;
    }
  }
  static constexpr int kBytes = 128 * kBits + 64;
};

/// What sums of products start from: as float bits, 1.5 * 2^23. A plane's dot of a group stays below 2^22
/// (128 elements x 255 x 128), so the bits of the sum are those of the float kSumBase + dot, exactly.
inline constexpr int kSumStart = 0x4b400000;
inline constexpr float kSumBase = 12582912.0f;

__device__ __forceinline__ void start_sums(int* sums, int count) {
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] = kSumStart;
}

/// float(256 * high + low), rounded once, of two sums that began at kSumStart. The fma is exact, a multiple
/// of 256 with at most 22 bits; the addition takes kSumBase out again and rounds. No faster than
/// joining and converting integers at few columns (docs/performance-cuda.md); the tile kernel is built on it.
__device__ __forceinline__ float joined_planes(int high, int low) {
  return __fadd_rn(__fmaf_rn(__int_as_float(high), 256.0f, -257.0f * kSumBase), __int_as_float(low));
}

/// One group of the contract: acc = fma(s * d, float(I), acc); acc = fma(b, D, acc), for the four results of
/// a lane. `high` and `low` began at kSumStart; `sides` holds d, D of two neighbouring columns.
__device__ __forceinline__ void add_group(float (&acc)[4], const int (&high)[4], const int (&low)[4],
                                          const RowSides& w, const float4& sides) {
  const auto term = [](float& to, int h, int l, float s, float b, float d, float sum) {
    to = __fmaf_rn(__fmul_rn(s, d), joined_planes(h, l), to);
    to = __fmaf_rn(b, sum, to);
  };
  term(acc[0], high[0], low[0], w.s0, w.b0, sides.x, sides.y);
  term(acc[1], high[1], low[1], w.s0, w.b0, sides.z, sides.w);
  term(acc[2], high[2], low[2], w.s1, w.b1, sides.x, sides.y);
  term(acc[3], high[3], low[3], w.s1, w.b1, sides.z, sides.w);
}

/// One common group of a row tile by a column tile: `x` holds both steps of a lane's column, `sides` d and D
/// of two neighbouring ones.
template <int kBits>
__device__ __forceinline__ void add_record(const Record<kBits>& record, const uint4 (&x)[2],
                                           const float4& sides, float (&acc)[4]) {
  int high[4], low[4];
  start_sums(high, 4);
  start_sums(low, 4);
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    std::uint32_t a[4];
    record.operand(a, s);
    multiply<kBits>(high, a, x[s].x, x[s].y, high);
    multiply<kBits>(low, a, x[s].z, x[s].w, low);
  }
  add_group(acc, high, low, narrow_sides(record.sides), sides);
}

/// Joins `count` values `stride` apart by the contract's tree: 1, 2, 4 or 8.
template <typename Load>
__device__ __forceinline__ float join_slices(int count, Load load) {
  if (count == 1) return load(0);
  if (count == 2) return load(0) + load(1);
  const float left = (load(0) + load(1)) + (load(2) + load(3));
  if (count == 4) return left;
  return left + ((load(4) + load(5)) + (load(6) + load(7)));
}

}  // namespace mererun::cuda
