#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/delta.h"
#include "kernels/numerics.h"

// Convolution, norms and gates of the delta rule for heads of 128 and four taps, one head of a row by one
// warp.

namespace mererun::cuda {

inline constexpr int kUsualTaps = 4, kUsualDim = 128, kUsualHeld = kUsualDim / 32;  // elements of a lane

/// What the convolution reads, and the gates.
struct DeltaInputs {
  Matrix<const float> rows, window, conv, a, b;
  const float *a_log, *dt_bias;
  float query_scale;
};

inline DeltaInputs delta_inputs(const DeltaPrepareParams& p) {
  return {matrix<const float>(p.inputs),      matrix<const float>(p.window),
          matrix<const float>(p.conv_weight), matrix<const float>(p.a),
          matrix<const float>(p.b),           p.a_log.row<const float>(0),
          p.dt_bias.row<const float>(0),      numerics::inverse_root(p.shape.key_dim)};
}

/// Whether the functions below serve a shape.
inline bool is_usual(const DeltaShape& s) {
  return s.key_dim == kUsualDim && s.conv_taps == kUsualTaps && s.value_width() % kUsualDim == 0;
}

using HeadTaps = float[kUsualHeld][kUsualTaps];
using HeadValues = float[kUsualHeld];  // of a lane: channels 32 apart

/// `channel`: this lane's first one.
__device__ __forceinline__ void load_taps(const DeltaInputs& p, int channel, HeadTaps& taps) {
#pragma unroll
  for (int j = 0; j < kUsualTaps; ++j) {
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) taps[m][j] = p.conv.row(j)[channel + 32 * m];
  }
}

/// Convolution and SiLU of row t: every load is under way before the first is used.
__device__ __forceinline__ void convolve(const DeltaInputs& p, int t, int channel, const HeadTaps& taps,
                                         HeadValues& out) {
  float x[kUsualHeld][kUsualTaps];
#pragma unroll
  for (int j = 0; j < kUsualTaps; ++j) {
    const int source = t - kUsualTaps + 1 + j;  // row of `rows`; negative: in the window
    const float* row = source >= 0 ? p.rows.row(source) : p.window.row(source + kUsualTaps - 1);
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) x[m][j] = row[channel + 32 * m];
  }
#pragma unroll
  for (int m = 0; m < kUsualHeld; ++m) {
    float acc = 0;
#pragma unroll
    for (int j = 0; j < kUsualTaps; ++j) acc = numerics::fma_f32(taps[m][j], x[m][j], acc);
    out[m] = numerics::silu_f32(acc);
  }
}

/// The l2 norm of a key, or of a query and its scale.
__device__ __forceinline__ void norm_key(HeadValues& x, bool is_query, float query_scale) {
  float acc = 0;
#pragma unroll
  for (int m = 0; m < kUsualHeld; ++m) acc = numerics::fma_f32(x[m], x[m], acc);
  const float norm = numerics::rsqrt_f32(__shfl_sync(kAllLanes, join_lanes(acc), 0) + numerics::kL2NormEps);
#pragma unroll
  for (int m = 0; m < kUsualHeld; ++m) {
    const float unit = x[m] * norm;
    x[m] = is_query ? unit * query_scale : unit;
  }
}

}  // namespace mererun::cuda
