#pragma once

#include <cmath>
#include <cstdint>

/// Marks the scalar functions of the numeric contract: the same source serves C++ and CUDA.
/// Always inlined on the host, so that a file built for a wider instruction set never exports a copy that a
/// baseline file could be linked with.
#if defined(__CUDACC__)
#define MERERUN_HD __host__ __device__ __forceinline__
#else
#define MERERUN_HD [[gnu::always_inline]] inline
#endif

/// The arithmetic every backend shares (docs/exactness.md), from correctly rounded IEEE operations only:
/// + - * / fma sqrt, integer and bit operations. Selects instead of branches, so that a compiler's vectorised
/// loop gives the bits of the scalar one. Needs -ffp-contract=off (nvcc: -fmad=false -ftz=false
/// -prec-div=true -prec-sqrt=true) and the default rounding mode.
namespace mererun::numerics {

inline constexpr int kLinearSlices = 8;          // slices of a long row, joined by join8
inline constexpr int kSlicedFromColumns = 2048;  // rows at least this long are sliced
inline constexpr int kDenseLanes = 32;           // lanes of a dense dot product
inline constexpr int kMaxReductionLanes = 256;
inline constexpr int kTilePositions = 64;  // keys of an attention tile, at absolute positions
inline constexpr int kSegmentTiles = 16;   // tiles of an attention segment
inline constexpr int kSegmentPositions = kTilePositions * kSegmentTiles;
inline constexpr int kDeltaLanes = 16;      // accumulators of a delta-rule dot product
inline constexpr float kCodeRange = 32512;  // 127 * 256: both int8 planes of a code fit
inline constexpr float kL2NormEps = 1e-6f;

// --- bits and elementary operations ---

MERERUN_HD std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(std::uint32_t, x);
#endif
}

MERERUN_HD float from_bits(std::uint32_t u) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(u);
#else
  return __builtin_bit_cast(float, u);
#endif
}

/// a * b + c with one rounding.
MERERUN_HD float fma_f32(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

MERERUN_HD float sqrt_f32(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

MERERUN_HD float abs_f32(float x) { return from_bits(bits_of(x) & 0x7fffffffu); }

/// The larger value; a NaN in `x` never replaces `best`.
MERERUN_HD float max_f32(float best, float x) { return best < x ? x : best; }

MERERUN_HD float quiet_nan() { return from_bits(0x7fc00000u); }

/// 1 / sqrt(x): a root, then a division, each rounded.
MERERUN_HD float rsqrt_f32(float x) { return 1.0f / sqrt_f32(x); }

inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits

/// Rounds to an integer, ties to even. Precondition: |x| <= 2^22.
MERERUN_HD std::int32_t rne_i32(float x) {
  return static_cast<std::int32_t>(bits_of(x + kRoundMagic) - 0x4b400000u);
}

/// p * 2^k for p in [0.5, 2] and k in [-160, 160], rounded once (also into the subnormal range, and to
/// infinity).
MERERUN_HD float scale_by_power(float p, std::int32_t k) {
  const std::int32_t half = k >> 1;
  const float first = from_bits(static_cast<std::uint32_t>(half + 127) << 23);
  const float second = from_bits(static_cast<std::uint32_t>(k - half + 127) << 23);
  return (p * first) * second;  // the first product is exact
}

// --- functions ---

/// e^x. Error < 1.1 ulp over the whole range; subnormal results are rounded once; overflow gives infinity,
/// NaN stays.
///
/// n = rne(x * log2 e), r = x - n ln 2 by two fma, e^r = 1 + (r + r^2 q(r)), q a minimax polynomial of
/// degree 4.
MERERUN_HD float exp_f32(float x) {
  float t = x < -104.5f ? -104.5f : x;  // e^-104.5 < 2^-150
  t = t > 89.0f ? 89.0f : t;
  const float shifted = t * 0x1.715476p+0f + kRoundMagic;
  const std::int32_t k = static_cast<std::int32_t>(bits_of(shifted) - 0x4b400000u);
  const float n = shifted - kRoundMagic;
  float r = fma_f32(n, -0x1.62e4p-1f, t);  // exact: the high part of ln 2 has 15 bits
  r = fma_f32(n, -0x1.7f7d1cp-20f, r);
  float q = 0x1.6db4eap-10f;
  q = fma_f32(q, r, 0x1.123bdep-7f);
  q = fma_f32(q, r, 0x1.55545ep-5f);
  q = fma_f32(q, r, 0x1.55548ep-3f);
  q = fma_f32(q, r, 0x1.0p-1f);
  const float p = 1.0f + fma_f32(r * r, q, r);
  return scale_by_power(p, k);
}

/// 2^x. Error < 1 ulp, otherwise as exp_f32; exact at integers.
///
/// n = rne(x), f = x - n exact, 2^f = 1 + f q(f), q a minimax polynomial of degree 5.
MERERUN_HD float exp2_f32(float x) {
  float t = x < -151.0f ? -151.0f : x;
  t = t > 129.0f ? 129.0f : t;
  const float shifted = t + kRoundMagic;
  const std::int32_t k = static_cast<std::int32_t>(bits_of(shifted) - 0x4b400000u);
  const float f = t - (shifted - kRoundMagic);
  float q = 0x1.448fbep-13f;
  q = fma_f32(q, f, 0x1.5f47aap-10f);
  q = fma_f32(q, f, 0x1.3b29aap-7f);
  q = fma_f32(q, f, 0x1.c6aed0p-5f);
  q = fma_f32(q, f, 0x1.ebfbe0p-3f);
  q = fma_f32(q, f, 0x1.62e430p-1f);
  return scale_by_power(fma_f32(f, q, 1.0f), k);
}

/// ln(1 + y) for y in [0, 2^64]; NaN stays. Error < 1.5 ulp.
///
/// 2^k is chosen from the rounded 1 + y so that m = (1 + y) / 2^k lies in [sqrt 1/2, sqrt 2]; f = m - 1 is
/// formed from y itself by one fma; ln m = f - f^2/2 + f^3 q(f), q a minimax polynomial of degree 8.
MERERUN_HD float log1p_f32(float y) {
  const std::uint32_t u = bits_of(1.0f + y);
  const std::int32_t k = static_cast<std::int32_t>(u - 0x3f3504f3u) >> 23;  // 0x3f3504f3: sqrt(1/2)
  const float inverse = from_bits(static_cast<std::uint32_t>(127 - k) << 23);
  const float f = fma_f32(y, inverse, inverse - 1.0f);
  float q = 0x1.1b7be2p-4f;
  q = fma_f32(q, f, -0x1.e2894ap-4f);
  q = fma_f32(q, f, 0x1.e5ff02p-4f);
  q = fma_f32(q, f, -0x1.fb4ffcp-4f);
  q = fma_f32(q, f, 0x1.2339dep-3f);
  q = fma_f32(q, f, -0x1.5562b4p-3f);
  q = fma_f32(q, f, 0x1.99a4dap-3f);
  q = fma_f32(q, f, -0x1.ffffeep-3f);
  q = fma_f32(q, f, 0x1.555546p-2f);
  const float kf = static_cast<float>(k);
  const float tail = fma_f32(f * f, fma_f32(f, q, -0.5f), kf * 0x1.7f7d1cp-20f);
  return fma_f32(kf, 0x1.62e4p-1f, f + tail);
}

/// x >= 0 ? 1 / (1 + e^-x) : e^x / (1 + e^x). Error < 2.5 ulp.
MERERUN_HD float sigmoid_f32(float x) {
  const float e = exp_f32(from_bits(bits_of(x) | 0x80000000u));  // e^-|x|
  const float numerator = x >= 0.0f ? 1.0f : e;
  return numerator / (1.0f + e);
}

/// x * sigmoid(x). -infinity gives NaN, which surfaces as a numeric error.
MERERUN_HD float silu_f32(float x) { return x * sigmoid_f32(x); }

/// x > 20 ? x : ln(1 + e^x). Error < 2 ulp.
MERERUN_HD float softplus_f32(float x) {
  const float small = log1p_f32(exp_f32(x > 20.0f ? 20.0f : x));
  return x > 20.0f ? x : small;
}

// --- int16 codes ---

/// How one group or head vector is rounded to int16 codes: code = rne(x / divisor), zero unless `live`.
struct CodeScale {
  float divisor;  // absmax / 32512; 1 where the codes are zero
  float scale;    // what a code is multiplied with: the divisor, or NaN after a non-finite value
  bool live;      // false: absmax < 2^-100 or a non-finite value; every code is zero
};

/// `absmax_bits` is the largest of bits(x) & 0x7fffffff over the group: integer order, so NaN and infinity
/// win.
MERERUN_HD CodeScale code_scale(std::uint32_t absmax_bits) {
  const bool non_finite = absmax_bits >= 0x7f800000u;
  const bool live = !non_finite && absmax_bits >= 0x0d800000u;  // 2^-100
  const float divisor = live ? from_bits(absmax_bits) / kCodeRange : 1.0f;
  return {divisor, non_finite ? quiet_nan() : divisor, live};
}

/// The code of one value; |code| <= 32512.
MERERUN_HD std::int16_t code_of(float x, CodeScale s) {
  return static_cast<std::int16_t>(rne_i32(s.live ? x / s.divisor : 0.0f));
}

/// Largest magnitude bits of n values, for code_scale.
MERERUN_HD std::uint32_t absmax_bits_of(const float* x, int n) {
  std::uint32_t most = 0;
  for (int i = 0; i < n; ++i) {
    const std::uint32_t u = bits_of(x[i]) & 0x7fffffffu;
    most = u > most ? u : most;
  }
  return most;
}

/// One quantised activation group as the linear contract uses it.
struct GroupScale {
  float d;    // multiplies the weight's scale; finite always
  float sum;  // D = d * (sum of the codes), one rounding; NaN after a non-finite value
};

/// Rounds one group of an activation row: d = absmax / 32512, codes rne(x / d), D = d * sum.
/// absmax < 2^-100: codes 0, d = 1, D = 0. A non-finite value: codes 0, d = 1, D = NaN, so that every output
/// the group touches is NaN. Preconditions: n <= 128 (the sum of codes is exact in int32 far beyond).
MERERUN_HD GroupScale quantise_group(const float* x, int n, std::int16_t* codes) {
  const CodeScale s = code_scale(absmax_bits_of(x, n));
  std::int32_t sum = 0;
  for (int i = 0; i < n; ++i) {
    codes[i] = code_of(x[i], s);
    sum += codes[i];
  }
  const float weighted = s.scale * static_cast<float>(sum);
  return {s.divisor, weighted};
}

/// Rounds one key, value or index-key vector for the cache and returns its scale; a value reads back as
/// float(code) * scale. absmax < 2^-100: codes 0, scale 1. A non-finite value: codes 0, scale NaN, so that
/// every value reads back as NaN and the rows that attend to it are NaN.
MERERUN_HD float quantise_head_vector(const float* x, int n, std::int16_t* codes) {
  const CodeScale s = code_scale(absmax_bits_of(x, n));
  for (int i = 0; i < n; ++i) codes[i] = code_of(x[i], s);
  return s.scale;
}

// --- orders of summation ---

/// Slices of a quantised row of K columns: 8 from 2048 columns on, else 1.
MERERUN_HD int slice_count(int columns) { return columns >= kSlicedFromColumns ? kLinearSlices : 1; }

/// First group of slice j of `slices`, of `groups` groups; slice_begin(slices, ...) = groups.
MERERUN_HD int slice_begin(int j, int slices, int groups) {
  return static_cast<int>(static_cast<std::int64_t>(j) * groups / slices);
}

/// ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7)).
MERERUN_HD float join8(const float* a) {
  return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

/// ((a0 + a1) + (a2 + a3)) in each run of four, then (L0 + L1) + (L2 + L3).
MERERUN_HD float join16(const float* a) {
  const float l0 = (a[0] + a[1]) + (a[2] + a[3]);
  const float l1 = (a[4] + a[5]) + (a[6] + a[7]);
  const float l2 = (a[8] + a[9]) + (a[10] + a[11]);
  const float l3 = (a[12] + a[13]) + (a[14] + a[15]);
  return (l0 + l1) + (l2 + l3);
}

/// Joins `lanes` (a power of two) partial sums by halving: a[i] += a[i + lanes / 2], and so on. Overwrites a.
MERERUN_HD float join_halving(float* a, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a[i] = a[i] + a[i + step];
  }
  return a[0];
}

/// Lanes of a sum over a vector of n (norms, softmax denominators): 256 for n >= 1024, else 32.
/// Lane j takes elements j, j + L, j + 2L, ... ascending, from +0.
MERERUN_HD int reduction_lanes(int n) { return n >= 1024 ? kMaxReductionLanes : 32; }

/// Dot product of n values in the lane order above: acc = fma(a, b, acc).
MERERUN_HD float sum_of_products(const float* a, const float* b, int n) {
  const int lanes = reduction_lanes(n);
  float acc[kMaxReductionLanes] = {};
  for (int base = 0; base < n; base += lanes) {
    const int count = n - base < lanes ? n - base : lanes;
    for (int j = 0; j < count; ++j) acc[j] = fma_f32(a[base + j], b[base + j], acc[j]);
  }
  return join_halving(acc, lanes);
}

/// Sum of squares of n values, likewise.
MERERUN_HD float sum_of_squares(const float* x, int n) { return sum_of_products(x, x, n); }

/// Sum of n values in the lane order above: acc = acc + x.
MERERUN_HD float sum_of_values(const float* x, int n) {
  const int lanes = reduction_lanes(n);
  float acc[kMaxReductionLanes] = {};
  for (int base = 0; base < n; base += lanes) {
    const int count = n - base < lanes ? n - base : lanes;
    for (int j = 0; j < count; ++j) acc[j] = acc[j] + x[base + j];
  }
  return join_halving(acc, lanes);
}

// --- steps that more than one backend writes out ---

/// Rotation of the pair (x[i], x[i + R / 2]): x[i] cos - x[i + R / 2] sin, the product with sin rounded
/// first.
MERERUN_HD float rotate_first(float first, float second, float cosine, float sine) {
  return fma_f32(first, cosine, -(second * sine));
}
/// x[i + R / 2] cos + x[i] sin, likewise.
MERERUN_HD float rotate_second(float first, float second, float cosine, float sine) {
  return fma_f32(second, cosine, first * sine);
}

/// Decay of the delta rule: exp(-exp(a_log) * softplus(a + dt_bias)).
MERERUN_HD float delta_decay(float a_log, float a, float dt_bias) {
  return exp_f32(-exp_f32(a_log) * softplus_f32(a + dt_bias));
}

/// sign(x) * sqrt(max(|x|, 1e-6)), sign(0) = 0: how the n-gram embedding compresses a similarity. NaN stays.
MERERUN_HD float signed_root(float x) {
  const float magnitude = abs_f32(x);
  const float root = sqrt_f32(magnitude < 1e-6f ? 1e-6f : magnitude);
  const float negated = x < 0.0f ? -root : root;
  return x == 0.0f ? 0.0f : negated;
}

/// n^-1/2 rounded to f32: the factor of the delta rule's queries (n = Dk).
MERERUN_HD float inverse_root(int n) { return static_cast<float>(1.0 / sqrt(static_cast<double>(n))); }

/// n^-1/2 * log2(e), the product rounded to f32: AttendParams::scale_log2e for n = head_dim.
MERERUN_HD float attention_scale_log2e(int n) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(n)) * 0x1.71547652b82fep+0);
}

/// Factors that bring two partial softmaxes, with maxima m and m_next, to their common maximum.
struct SoftmaxFold {
  float m;     // max(m, m_next)
  float keep;  // exp2(m - max): of the left sums
  float add;   // exp2(m_next - max): of the right sums
};

MERERUN_HD SoftmaxFold fold_of(float m, float m_next) {
  const float most = max_f32(m, m_next);
  return {most, exp2_f32(m - most), exp2_f32(m_next - most)};
}

/// left * keep + right * add, the right product rounded first.
MERERUN_HD float fold_sum(float left, float right, SoftmaxFold f) {
  return fma_f32(left, f.keep, right * f.add);
}

}  // namespace mererun::numerics
