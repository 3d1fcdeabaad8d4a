#pragma once

// Vectors of the NEON kernels: 16 lanes are four registers. Included inside the namespace of one instruction
// set, after <arm_neon.h>.

#include "kernels/cpu/isa/vec_common.h"

struct F16 {
  float32x4_t r[4];
};
struct I16 {
  int32x4_t r[4];
};
using FN = float32x4_t;
constexpr int kLanes = 4;
constexpr int kMaxTileRows = 4;
constexpr bool kHasByteDots = false;
constexpr int kMaxQueries = 6;  // queries that share the registers of an attention tile
constexpr int kDeltaSums = 16;  // delta-rule accumulators that fit the registers at once
constexpr int kAttentionVectors = 4;

template <typename V>
V load(const float* p);
template <>
MERERUN_VEC FN load<FN>(const float* p) {
  return vld1q_f32(p);
}
template <>
MERERUN_VEC F16 load<F16>(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
template <typename V>
V splat(float x);
template <>
MERERUN_VEC FN splat<FN>(float x) {
  return vdupq_n_f32(x);
}
template <>
MERERUN_VEC F16 splat<F16>(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
MERERUN_VEC void store(float* p, FN v) { vst1q_f32(p, v); }
MERERUN_VEC FN add(FN a, FN b) { return vaddq_f32(a, b); }
MERERUN_VEC FN sub(FN a, FN b) { return vsubq_f32(a, b); }
MERERUN_VEC FN mul(FN a, FN b) { return vmulq_f32(a, b); }
MERERUN_VEC FN div(FN a, FN b) { return vdivq_f32(a, b); }
MERERUN_VEC FN fma(FN a, FN b, FN c) { return vfmaq_f32(c, a, b); }
/// The larger of each lane; a NaN in x never replaces best.
MERERUN_VEC FN max_of(FN best, FN x) { return vbslq_f32(vcltq_f32(best, x), x, best); }

#define MERERUN_EACH(T, expression)                \
  T v;                                             \
  for (int i = 0; i < 4; ++i) v.r[i] = expression; \
  return v

MERERUN_VEC void store(float* p, F16 v) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.r[i]);
}
MERERUN_VEC F16 add(F16 x, F16 y) { MERERUN_EACH(F16, add(x.r[i], y.r[i])); }
MERERUN_VEC F16 sub(F16 x, F16 y) { MERERUN_EACH(F16, sub(x.r[i], y.r[i])); }
MERERUN_VEC F16 mul(F16 x, F16 y) { MERERUN_EACH(F16, mul(x.r[i], y.r[i])); }
MERERUN_VEC F16 div(F16 x, F16 y) { MERERUN_EACH(F16, div(x.r[i], y.r[i])); }
MERERUN_VEC F16 fma(F16 x, F16 y, F16 z) { MERERUN_EACH(F16, fma(x.r[i], y.r[i], z.r[i])); }

MERERUN_VEC I16 load_i(const void* p) {
  const auto* q = static_cast<const std::uint8_t*>(p);
  MERERUN_EACH(I16, vreinterpretq_s32_u8(vld1q_u8(q + 16 * i)));
}
MERERUN_VEC void store_i(void* p, I16 x) {
  auto* q = static_cast<std::uint8_t*>(p);
  for (int i = 0; i < 4; ++i) vst1q_u8(q + 16 * i, vreinterpretq_u8_s32(x.r[i]));
}
MERERUN_VEC I16 zero_i() { MERERUN_EACH(I16, vdupq_n_s32(0)); }
MERERUN_VEC I16 splat_i(std::int32_t x) { MERERUN_EACH(I16, vdupq_n_s32(x)); }
MERERUN_VEC I16 add_i(I16 x, I16 y) { MERERUN_EACH(I16, vaddq_s32(x.r[i], y.r[i])); }
MERERUN_VEC I16 and_i(I16 x, I16 y) { MERERUN_EACH(I16, vandq_s32(x.r[i], y.r[i])); }
MERERUN_VEC I16 or_i(I16 x, I16 y) { MERERUN_EACH(I16, vorrq_s32(x.r[i], y.r[i])); }
template <int kBy>
MERERUN_VEC I16 shift_right(I16 x) {
  if constexpr (kBy == 0) {
    return x;
  } else {
    MERERUN_EACH(I16, vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x.r[i]), kBy)));
  }
}
template <int kBy>
MERERUN_VEC I16 shift_left(I16 x) {
  MERERUN_EACH(I16, vshlq_n_s32(x.r[i], kBy));
}
template <int kBy>
MERERUN_VEC I16 shift_right_signed(I16 x) {
  if constexpr (kBy == 0) {
    return x;
  } else {
    MERERUN_EACH(I16, vshrq_n_s32(x.r[i], kBy));
  }
}
/// acc + w.lo * pair[0] + w.hi * pair[1] in int32, exact; w holds codes, which are never negative.
MERERUN_VEC I16 dot_pairs(I16 acc, I16 w, const std::int16_t* pair) {
  const I16 x = splat_i(load_pair(pair));
  I16 v;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t low = vshrq_n_s32(vshlq_n_s32(x.r[i], 16), 16);
    const int32x4_t high = vshrq_n_s32(x.r[i], 16);
    v.r[i] = vmlaq_s32(acc.r[i], vandq_s32(w.r[i], vdupq_n_s32(0xffff)), low);
    v.r[i] = vmlaq_s32(v.r[i], vshrq_n_s32(w.r[i], 16), high);
  }
  return v;
}
MERERUN_VEC F16 to_float(I16 x) { MERERUN_EACH(F16, vcvtq_f32_s32(x.r[i])); }
/// Reinterprets 16 int32 as floats.
MERERUN_VEC F16 as_float(I16 x) { MERERUN_EACH(F16, vreinterpretq_f32_s32(x.r[i])); }
MERERUN_VEC uint16x4_t load_u16x4(const void* p, int i) {
  uint16x4_t v;
  __builtin_memcpy(&v, static_cast<const std::uint8_t*>(p) + 8 * i, 8);
  return v;
}
MERERUN_VEC F16 load_bf16(const void* p) {
  MERERUN_EACH(F16, vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(load_u16x4(p, i)), 16)));
}
MERERUN_VEC F16 load_f16(const void* p) {
  MERERUN_EACH(F16, vcvt_f32_f16(vreinterpret_f16_u16(load_u16x4(p, i))));
}
/// 4 int16 widened to float.
MERERUN_VEC FN load_codes_n(const std::int16_t* p) { return vcvtq_f32_s32(vmovl_s16(vld1_s16(p))); }
/// Joins 16 lanes by halving: lane i += lane i + 8, then 4, 2, 1.
MERERUN_VEC float join_lanes(F16 x) {
  const float32x4_t a = vaddq_f32(vaddq_f32(x.r[0], x.r[2]), vaddq_f32(x.r[1], x.r[3]));
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

/// Codes of 4 keys (`stride` apart), 8 dims each, transposed: out[d * out_stride + key].
MERERUN_VEC void transpose_codes(const std::int16_t* codes, std::int64_t stride, float* out,
                                 std::int64_t out_stride) {
  int32x4_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = vreinterpretq_s32_s16(vld1q_s16(codes + i * stride));  // two dims a lane
  const int32x4x2_t low = vtrnq_s32(a[0], a[1]);
  const int32x4x2_t high = vtrnq_s32(a[2], a[3]);
  const int32x4_t pairs[4] = {vcombine_s32(vget_low_s32(low.val[0]), vget_low_s32(high.val[0])),
                              vcombine_s32(vget_low_s32(low.val[1]), vget_low_s32(high.val[1])),
                              vcombine_s32(vget_high_s32(low.val[0]), vget_high_s32(high.val[0])),
                              vcombine_s32(vget_high_s32(low.val[1]), vget_high_s32(high.val[1]))};
  for (int i = 0; i < 4; ++i) {
    vst1q_f32(out + 2 * i * out_stride, vcvtq_f32_s32(vshrq_n_s32(vshlq_n_s32(pairs[i], 16), 16)));
    vst1q_f32(out + (2 * i + 1) * out_stride, vcvtq_f32_s32(vshrq_n_s32(pairs[i], 16)));
  }
}
#undef MERERUN_EACH
