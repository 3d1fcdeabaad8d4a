#pragma once

// Vectors of the portable kernels: the compiler's generic 16-lane vectors, which it splits into whatever the
// baseline machine has. Included inside the namespace of one instruction set.

#include "kernels/cpu/isa/vec_common.h"

typedef float F16 __attribute__((vector_size(64), aligned(4)));
typedef std::int32_t I16 __attribute__((vector_size(64), aligned(4)));
typedef std::uint32_t U16 __attribute__((vector_size(64), aligned(4)));
using FN = F16;
constexpr int kLanes = 16;
constexpr int kMaxTileRows = 4;
constexpr bool kHasByteDots = false;
constexpr int kMaxQueries = 6;  // queries that share the registers of an attention tile
constexpr int kDeltaSums = 8;   // delta-rule accumulators that fit the registers at once
constexpr int kAttentionVectors = 1;

template <typename V>
V load(const float* p);
template <>
MERERUN_VEC F16 load<F16>(const float* p) {
  F16 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <typename V>
V splat(float x);
template <>
MERERUN_VEC F16 splat<F16>(float x) {
  F16 v;
  for (int i = 0; i < 16; ++i) v[i] = x;
  return v;
}
MERERUN_VEC void store(float* p, F16 v) { __builtin_memcpy(p, &v, sizeof v); }
MERERUN_VEC F16 add(F16 a, F16 b) { return a + b; }
MERERUN_VEC F16 sub(F16 a, F16 b) { return a - b; }
MERERUN_VEC F16 mul(F16 a, F16 b) { return a * b; }
MERERUN_VEC F16 div(F16 a, F16 b) { return a / b; }
MERERUN_VEC F16 fma(F16 a, F16 b, F16 c) {
  F16 v;
  for (int i = 0; i < 16; ++i) v[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return v;
}
/// The larger of each lane; a NaN in x never replaces best.
MERERUN_VEC F16 max_of(F16 best, F16 x) { return best < x ? x : best; }

MERERUN_VEC I16 load_i(const void* p) {
  I16 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
MERERUN_VEC void store_i(void* p, I16 v) { __builtin_memcpy(p, &v, sizeof v); }
MERERUN_VEC I16 zero_i() { return I16{}; }
MERERUN_VEC I16 splat_i(std::int32_t x) { return I16{} + x; }
MERERUN_VEC I16 add_i(I16 a, I16 b) { return a + b; }
MERERUN_VEC I16 and_i(I16 a, I16 b) { return a & b; }
MERERUN_VEC I16 or_i(I16 a, I16 b) { return a | b; }
template <int kBy>
MERERUN_VEC I16 shift_right(I16 v) {
  return reinterpret_cast<I16>(reinterpret_cast<U16>(v) >> kBy);
}
template <int kBy>
MERERUN_VEC I16 shift_left(I16 v) {
  return v << kBy;
}
template <int kBy>
MERERUN_VEC I16 shift_right_signed(I16 v) {
  return v >> kBy;
}
/// acc + w.lo * pair[0] + w.hi * pair[1] in int32, exact; w holds codes, which are never negative.
MERERUN_VEC I16 dot_pairs(I16 acc, I16 w, const std::int16_t* pair) {
  const I16 x = splat_i(load_pair(pair));
#if defined(__SSE2__)
  I16 r;
  for (int i = 0; i < 4; ++i) {
    __m128i a, b;
    __builtin_memcpy(&a, reinterpret_cast<const char*>(&w) + 16 * i, 16);
    __builtin_memcpy(&b, reinterpret_cast<const char*>(&x) + 16 * i, 16);
    const __m128i m = _mm_madd_epi16(a, b);
    __builtin_memcpy(reinterpret_cast<char*>(&r) + 16 * i, &m, 16);
  }
  return acc + r;
#else
  return acc + (w & 0xffff) * ((x << 16) >> 16) + (w >> 16) * (x >> 16);
#endif
}
MERERUN_VEC F16 to_float(I16 v) { return __builtin_convertvector(v, F16); }
/// Reinterprets 16 int32 as floats.
MERERUN_VEC F16 as_float(I16 v) { return reinterpret_cast<F16>(v); }
MERERUN_VEC F16 load_bf16(const void* p) {
  std::uint16_t h[16];
  __builtin_memcpy(h, p, sizeof h);
  I16 v;
  for (int i = 0; i < 16; ++i) v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(h[i]) << 16);
  return as_float(v);
}
/// Widens binary16 by moving its bits into a float and scaling by 2^112, which is exact for subnormals too.
MERERUN_VEC float widen_f16(std::uint16_t h) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(h & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const bool special = magnitude >= 0x0f800000u;  // infinity or NaN
  const float scaled = __builtin_bit_cast(float, magnitude) * 0x1.0p112f;
  const std::uint32_t bits = special ? (magnitude | 0x7f800000u) : __builtin_bit_cast(std::uint32_t, scaled);
  return __builtin_bit_cast(float, bits | sign);
}
MERERUN_VEC F16 load_f16(const void* p) {
  std::uint16_t h[16];
  __builtin_memcpy(h, p, sizeof h);
  F16 v;
  for (int i = 0; i < 16; ++i) v[i] = widen_f16(h[i]);
  return v;
}
/// 16 int16 widened to float.
MERERUN_VEC F16 load_codes_n(const std::int16_t* p) {
  F16 v;
  for (int i = 0; i < 16; ++i) v[i] = static_cast<float>(p[i]);
  return v;
}
/// Joins 16 lanes by halving: lane i += lane i + 8, then 4, 2, 1.
MERERUN_VEC float join_lanes(F16 v) {
  float a[16];
  store(a, v);
  return numerics::join_halving(a, 16);
}

/// Codes of 16 keys (`stride` apart), 32 dims each, transposed: out[d * out_stride + key].
MERERUN_VEC void transpose_codes(const std::int16_t* codes, std::int64_t stride, float* out,
                                 std::int64_t out_stride) {
  for (int d = 0; d < 32; ++d) {
    for (int i = 0; i < 16; ++i) out[d * out_stride + i] = static_cast<float>(codes[i * stride + d]);
  }
}
