#pragma once

// Vectors of the AVX-512 kernels. Included only by files compiled for AVX-512 (F, BW, DQ, VL), inside the
// namespace of one instruction set, after <immintrin.h>.

#include "kernels/cpu/isa/vec_common.h"

using F16 = __m512;   // 16 floats: one output row of a panel per lane
using I16 = __m512i;  // 16 int32, or 16 pairs of int16
using FN = __m512;    // the widest vector of floats one register holds
constexpr int kLanes = 16;
constexpr int kMaxTileRows = 8;  // activation rows that share one unpacked weight
constexpr bool kHasByteDots = true;
constexpr int kMaxQueries = 8;        // queries that share the registers of an attention tile
constexpr int kDeltaSums = 16;        // delta-rule accumulators that fit the registers at once
constexpr int kAttentionVectors = 2;  // registers of keys (or value dims) per query in the attention tile

template <typename V>
V load(const float* p);
template <>
MERERUN_VEC F16 load<F16>(const float* p) {
  return _mm512_loadu_ps(p);
}
template <typename V>
V splat(float x);
template <>
MERERUN_VEC F16 splat<F16>(float x) {
  return _mm512_set1_ps(x);
}
MERERUN_VEC void store(float* p, F16 v) { _mm512_storeu_ps(p, v); }
MERERUN_VEC F16 add(F16 a, F16 b) { return _mm512_add_ps(a, b); }
MERERUN_VEC F16 sub(F16 a, F16 b) { return _mm512_sub_ps(a, b); }
MERERUN_VEC F16 mul(F16 a, F16 b) { return _mm512_mul_ps(a, b); }
MERERUN_VEC F16 div(F16 a, F16 b) { return _mm512_div_ps(a, b); }
MERERUN_VEC F16 fma(F16 a, F16 b, F16 c) { return _mm512_fmadd_ps(a, b, c); }
/// The larger of each lane; a NaN in x never replaces best.
MERERUN_VEC F16 max_of(F16 best, F16 x) { return _mm512_max_ps(x, best); }

MERERUN_VEC I16 load_i(const void* p) { return _mm512_loadu_si512(p); }
MERERUN_VEC void store_i(void* p, I16 v) { _mm512_storeu_si512(p, v); }
MERERUN_VEC I16 zero_i() { return _mm512_setzero_si512(); }
MERERUN_VEC I16 splat_i(std::int32_t x) { return _mm512_set1_epi32(x); }
MERERUN_VEC I16 add_i(I16 a, I16 b) { return _mm512_add_epi32(a, b); }
MERERUN_VEC I16 and_i(I16 a, I16 b) { return _mm512_and_si512(a, b); }
MERERUN_VEC I16 or_i(I16 a, I16 b) { return _mm512_or_si512(a, b); }
template <int kBy>
MERERUN_VEC I16 shift_right(I16 v) {
  if constexpr (kBy == 0) return v;
  return _mm512_srli_epi32(v, kBy);
}
template <int kBy>
MERERUN_VEC I16 shift_left(I16 v) {
  if constexpr (kBy == 0) return v;
  return _mm512_slli_epi32(v, kBy);
}
template <int kBy>
MERERUN_VEC I16 shift_right_signed(I16 v) {
  if constexpr (kBy == 0) return v;
  return _mm512_srai_epi32(v, kBy);
}
/// acc + w.lo * pair[0] + w.hi * pair[1] in int32, exact.
MERERUN_VEC I16 dot_pairs(I16 acc, I16 w, const std::int16_t* pair) {
#if defined(__AVX512VNNI__)
  // In place, with the pair broadcast by the load: the intrinsic costs a copy of the sum and a register.
  using Pair = std::int32_t __attribute__((may_alias, aligned(2)));
  asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*reinterpret_cast<const Pair*>(pair)));
  return acc;
#else
  acc = _mm512_add_epi32(acc, _mm512_madd_epi16(w, splat_i(load_pair(pair))));
  // A sum is taken here and now: left alone, the compiler delays the adds and spills the products.
  asm("" : "+v"(acc));
  return acc;
#endif
}
#if defined(__AVX512VNNI__)
struct ByteSums : BytePlanes {
  // Of the lower and the upper codes of bytes; the upper ones are taken 16-fold, where they lie.
  I16 low[2] = {zero_i(), zero_i()}, high[2] = {zero_i(), zero_i()};

  /// A unit's codes times their planes.
  MERERUN_VEC void take(const std::byte* unit, const std::byte* planes) {
    for (int i = 0; i < kUnitCodes / 8; ++i, unit += 64, planes += 16) {
      const I16 word = load_i(unit);
      const I16 lower = and_i(word, splat_i(0x0f0f0f0f));
      add_products(low[0], lower, planes);
      add_products(high[0], lower, planes + 4);
      const I16 upper = and_i(word, splat_i(static_cast<std::int32_t>(0xf0f0f0f0u)));
      add_products(low[1], upper, planes + 8);
      add_products(high[1], upper, planes + 12);
    }
  }
  MERERUN_VEC I16 total() const {
    const I16 lower = add_i(low[0], shift_left<8>(high[0]));
    const I16 upper = add_i(low[1], shift_left<8>(high[1]));
    return add_i(lower, shift_right_signed<4>(upper));
  }

 private:
  /// sum += the four unsigned bytes of each lane times four signed ones.
  MERERUN_VEC static void add_products(I16& sum, I16 w, const std::byte* quad) {
    using Quad = std::int32_t __attribute__((may_alias, aligned(1)));
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Quad*>(quad)));
  }
};
#else
/// acc, 32 lanes of int16, + pairs of products of w's unsigned bytes and the four signed ones of a quad.
MERERUN_VEC I16 dot_bytes(I16 acc, I16 w, const std::byte* quad) {
  const I16 x = splat_i(load_pair(reinterpret_cast<const std::int16_t*>(quad)));
  acc = _mm512_add_epi16(acc, _mm512_maddubs_epi16(w, x));
  asm("" : "+v"(acc));  // as in dot_pairs
  return acc;
}
/// Each lane's pair of int16 added up, times `by`.
MERERUN_VEC I16 join_pairs(I16 v, std::int16_t by) { return _mm512_madd_epi16(v, _mm512_set1_epi16(by)); }
#endif
MERERUN_VEC F16 to_float(I16 v) { return _mm512_cvtepi32_ps(v); }
MERERUN_VEC F16 load_bf16(const void* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
}
MERERUN_VEC F16 load_f16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
/// 16 int16 widened to float.
MERERUN_VEC F16 load_codes_n(const std::int16_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
}
/// Reinterprets 16 int32 as floats.
MERERUN_VEC F16 as_float(I16 v) { return _mm512_castsi512_ps(v); }

/// Joins 16 lanes by halving: lane i += lane i + 8, then 4, 2, 1.
MERERUN_VEC float join_lanes(F16 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/// Codes of 16 keys (`stride` apart), 32 dims each, transposed: out[d * out_stride + key].
MERERUN_VEC void transpose_codes(const std::int16_t* codes, std::int64_t stride, float* out,
                                 std::int64_t out_stride) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(codes + i * stride);  // two dims a lane
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {  // a[i + c]: 128-bit blocks q hold dims pair 4q + c of keys i .. i + 3
    for (int c = 0; c < 4; ++c) {
      b[i + c] = _mm512_shuffle_i32x4(a[i + c], a[i + 4 + c], 0x88);      // blocks 0, 2
      b[i + 4 + c] = _mm512_shuffle_i32x4(a[i + c], a[i + 4 + c], 0xdd);  // blocks 1, 3
    }
  }
  for (int c = 0; c < 4; ++c) {
    a[c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0x88);           // pair c
    a[8 + c] = _mm512_shuffle_i32x4(b[c], b[8 + c], 0xdd);       // pair 8 + c
    a[4 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0x88);  // pair 4 + c
    a[12 + c] = _mm512_shuffle_i32x4(b[4 + c], b[12 + c], 0xdd);
  }
  for (int i = 0; i < 16; ++i) {
    const __m512i even = _mm512_srai_epi32(_mm512_slli_epi32(a[i], 16), 16);
    _mm512_storeu_ps(out + 2 * i * out_stride, _mm512_cvtepi32_ps(even));
    _mm512_storeu_ps(out + (2 * i + 1) * out_stride, _mm512_cvtepi32_ps(_mm512_srai_epi32(a[i], 16)));
  }
}
