#pragma once

// Vectors of the AVX2 kernels: 16 lanes are two registers. Included only by the file compiled for AVX2, FMA
// and F16C, inside the namespace of one instruction set, after <immintrin.h>.

#include "kernels/cpu/isa/vec_common.h"

struct F16 {
  __m256 a, b;
};
struct I16 {
  __m256i a, b;
};
using FN = __m256;
constexpr int kLanes = 8;
constexpr int kMaxTileRows = 4;
constexpr bool kHasByteDots = true;
constexpr int kMaxQueries = 6;  // queries that share the registers of an attention tile
constexpr int kDeltaSums = 8;   // delta-rule accumulators that fit the registers at once
constexpr int kAttentionVectors = 2;

template <typename V>
V load(const float* p);
template <>
MERERUN_VEC F16 load<F16>(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
template <>
MERERUN_VEC FN load<FN>(const float* p) {
  return _mm256_loadu_ps(p);
}
template <typename V>
V splat(float x);
template <>
MERERUN_VEC FN splat<FN>(float x) {
  return _mm256_set1_ps(x);
}
template <>
MERERUN_VEC F16 splat<F16>(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
MERERUN_VEC void store(float* p, FN v) { _mm256_storeu_ps(p, v); }
MERERUN_VEC FN add(FN a, FN b) { return _mm256_add_ps(a, b); }
MERERUN_VEC FN sub(FN a, FN b) { return _mm256_sub_ps(a, b); }
MERERUN_VEC FN mul(FN a, FN b) { return _mm256_mul_ps(a, b); }
MERERUN_VEC FN div(FN a, FN b) { return _mm256_div_ps(a, b); }
MERERUN_VEC FN fma(FN a, FN b, FN c) { return _mm256_fmadd_ps(a, b, c); }
/// The larger of each lane; a NaN in x never replaces best.
MERERUN_VEC FN max_of(FN best, FN x) { return _mm256_max_ps(x, best); }

MERERUN_VEC void store(float* p, F16 v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
MERERUN_VEC F16 add(F16 x, F16 y) { return {add(x.a, y.a), add(x.b, y.b)}; }
MERERUN_VEC F16 sub(F16 x, F16 y) { return {sub(x.a, y.a), sub(x.b, y.b)}; }
MERERUN_VEC F16 mul(F16 x, F16 y) { return {mul(x.a, y.a), mul(x.b, y.b)}; }
MERERUN_VEC F16 div(F16 x, F16 y) { return {div(x.a, y.a), div(x.b, y.b)}; }
MERERUN_VEC F16 fma(F16 x, F16 y, F16 z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)}; }

MERERUN_VEC I16 load_i(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
MERERUN_VEC void store_i(void* p, I16 v) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, v.a);
  _mm256_storeu_si256(q + 1, v.b);
}
MERERUN_VEC I16 zero_i() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
MERERUN_VEC I16 splat_i(std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
MERERUN_VEC I16 add_i(I16 x, I16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
MERERUN_VEC I16 and_i(I16 x, I16 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
MERERUN_VEC I16 or_i(I16 x, I16 y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
template <int kBy>
MERERUN_VEC I16 shift_right(I16 v) {
  if constexpr (kBy == 0) return v;
  return {_mm256_srli_epi32(v.a, kBy), _mm256_srli_epi32(v.b, kBy)};
}
template <int kBy>
MERERUN_VEC I16 shift_left(I16 v) {
  if constexpr (kBy == 0) return v;
  return {_mm256_slli_epi32(v.a, kBy), _mm256_slli_epi32(v.b, kBy)};
}
template <int kBy>
MERERUN_VEC I16 shift_right_signed(I16 v) {
  if constexpr (kBy == 0) return v;
  return {_mm256_srai_epi32(v.a, kBy), _mm256_srai_epi32(v.b, kBy)};
}
/// acc + w.lo * pair[0] + w.hi * pair[1] in int32, exact.
MERERUN_VEC I16 dot_pairs(I16 acc, I16 w, const std::int16_t* pair) {
  const __m256i x = _mm256_set1_epi32(load_pair(pair));
  acc.a = _mm256_add_epi32(acc.a, _mm256_madd_epi16(w.a, x));
  acc.b = _mm256_add_epi32(acc.b, _mm256_madd_epi16(w.b, x));
  // A sum is taken here and now: left alone, the compiler delays the adds and spills the products.
  asm("" : "+x"(acc.a), "+x"(acc.b));
  return acc;
}
/// acc, 32 lanes of int16, + pairs of products of w's unsigned bytes and the four signed ones of a quad.
MERERUN_VEC I16 dot_bytes(I16 acc, I16 w, const std::byte* quad) {
  const __m256i x = _mm256_set1_epi32(load_pair(reinterpret_cast<const std::int16_t*>(quad)));
  acc.a = _mm256_add_epi16(acc.a, _mm256_maddubs_epi16(w.a, x));
  acc.b = _mm256_add_epi16(acc.b, _mm256_maddubs_epi16(w.b, x));
  asm("" : "+x"(acc.a), "+x"(acc.b));  // as in dot_pairs
  return acc;
}
/// Each lane's pair of int16 added up, times `by`.
MERERUN_VEC I16 join_pairs(I16 v, std::int16_t by) {
  return {_mm256_madd_epi16(v.a, _mm256_set1_epi16(by)), _mm256_madd_epi16(v.b, _mm256_set1_epi16(by))};
}
MERERUN_VEC F16 to_float(I16 v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
MERERUN_VEC FN widen_bf16(const __m128i* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
MERERUN_VEC F16 load_bf16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {widen_bf16(q), widen_bf16(q + 1)};
}
MERERUN_VEC F16 load_f16(const void* p) {
  const auto* q = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
/// 8 int16 widened to float.
MERERUN_VEC FN load_codes_n(const std::int16_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
/// Reinterprets 16 int32 as floats.
MERERUN_VEC F16 as_float(I16 v) { return {_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)}; }

/// Joins 16 lanes by halving: lane i += lane i + 8, then 4, 2, 1.
MERERUN_VEC float join_lanes(F16 v) {
  const __m256 a = _mm256_add_ps(v.a, v.b);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/// Codes of 8 keys (`stride` apart), 16 dims each, transposed: out[d * out_stride + key].
MERERUN_VEC void transpose_codes(const std::int16_t* codes, std::int64_t stride, float* out,
                                 std::int64_t out_stride) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) {  // two dims a lane
    a[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i * stride));
  }
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    b[c] = _mm256_permute2x128_si256(a[c], a[4 + c], 0x20);      // pair c
    b[4 + c] = _mm256_permute2x128_si256(a[c], a[4 + c], 0x31);  // pair 4 + c
  }
  for (int i = 0; i < 8; ++i) {
    const __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(b[i], 16), 16);
    _mm256_storeu_ps(out + 2 * i * out_stride, _mm256_cvtepi32_ps(even));
    _mm256_storeu_ps(out + (2 * i + 1) * out_stride, _mm256_cvtepi32_ps(_mm256_srai_epi32(b[i], 16)));
  }
}
