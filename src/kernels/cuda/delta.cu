#include "kernels/cuda/delta.h"

#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

namespace {

namespace nm = numerics;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Prepare {
  DeltaShape shape;
  int channels, key_width, value_width;
  Matrix<const float> inputs, window, conv, a, b;
  const float *a_log, *dt_bias;
  Matrix<float> q, k, v, alpha, beta;
  float query_scale;
};

/// Convolution and SiLU of one channel of row t.
__device__ float convolved(const Prepare& p, int t, int channel) {
  const int taps = p.shape.conv_taps;
  float acc = 0;
#pragma unroll 4
  for (int j = 0; j < taps; ++j) {
    const int source = t - taps + 1 + j;  // row of `inputs`; negative: in the window
    const float x = source >= 0 ? p.inputs.row(source)[channel] : p.window.row(source + taps - 1)[channel];
    acc = nm::fma_f32(p.conv.row(j)[channel], x, acc);
  }
  return nm::silu_f32(acc);
}

/// One warp: a query head, a key head, 32 value channels, or 32 gates of one row.
__global__ void __launch_bounds__(kThreads) delta_prepare_kernel(Prepare p) {
  let_successor_start();
  wait_for_predecessor();
  const int t = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x & 31);
  int item = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int heads = p.shape.key_heads;
  if (item < 2 * heads) {
    const bool is_query = item < heads;
    const int head = is_query ? item : item - heads;
    const int dim = p.shape.key_dim;
    const int first = (is_query ? 0 : p.key_width) + head * dim;
    float* out = (is_query ? p.q : p.k).row(t) + head * dim;
    constexpr int kHeld = 4;
    if (dim == 32 * kHeld) {
      float x[kHeld];
#pragma unroll
      for (int m = 0; m < kHeld; ++m) x[m] = convolved(p, t, first + lane + 32 * m);
      float acc = 0;
#pragma unroll
      for (int m = 0; m < kHeld; ++m) acc = nm::fma_f32(x[m], x[m], acc);
      const float norm = nm::rsqrt_f32(__shfl_sync(kAllLanes, join_lanes(acc), 0) + nm::kL2NormEps);
#pragma unroll
      for (int m = 0; m < kHeld; ++m) {
        const float unit = x[m] * norm;
        out[lane + 32 * m] = is_query ? unit * p.query_scale : unit;
      }
      return;
    }
    // Each lane writes and reads back its own elements.
    const float sum = warp_reduce(dim, [&](float acc, int i) {
      const float x = convolved(p, t, first + i);
      out[i] = x;
      return nm::fma_f32(x, x, acc);
    });
    const float norm = nm::rsqrt_f32(sum + nm::kL2NormEps);
    for (int i = lane; i < dim; i += 32) {
      const float unit = out[i] * norm;
      out[i] = is_query ? unit * p.query_scale : unit;
    }
    return;
  }
  item -= 2 * heads;
  const int value_items = (p.value_width + 31) / 32;
  if (item < value_items) {
    const int i = item * 32 + lane;
    if (i < p.value_width) p.v.row(t)[i] = convolved(p, t, 2 * p.key_width + i);
    return;
  }
  const int h = (item - value_items) * 32 + lane;
  if (h >= p.shape.value_heads) return;
  p.alpha.row(t)[h] = nm::delta_decay(p.a_log[h], p.a.row(t)[h], p.dt_bias[h]);
  p.beta.row(t)[h] = nm::sigmoid_f32(p.b.row(t)[h]);
}

struct Replay {
  int key_dim, value_dim, heads_per_key, rows;
  std::int64_t elements;
  Matrix<const float> k, u, alpha;
  Matrix<float> state;
};

/// One element of the state through all logged rows.
__global__ void __launch_bounds__(kThreads) delta_replay_kernel(Replay p) {
  let_successor_start();
  wait_for_predecessor();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= p.elements) return;
  const int c = static_cast<int>(item % p.value_dim);
  const int row = static_cast<int>(item / p.value_dim);
  const int head = row / p.key_dim;
  const int key = head / p.heads_per_key * p.key_dim + row % p.key_dim;
  float* at = p.state.row(row) + c;
  float s = *at;
  for (int t = 0; t < p.rows; ++t) {
    s = p.alpha.row(t)[head] * s;
    s = nm::fma_f32(p.u.row(t)[head * p.value_dim + c], p.k.row(t)[key], s);
  }
  *at = s;
}

/// One channel of the window, oldest row first: a row is read before it is overwritten.
__global__ void __launch_bounds__(kThreads)
    advance_window_kernel(Matrix<float> window, Matrix<const float> inputs, int kept, int rows,
                          int channels) {
  let_successor_start();
  wait_for_predecessor();
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= channels) return;
  for (int i = 0; i < kept; ++i) {
    const int source = i + rows - kept;  // row of `inputs`; negative: in the old window
    window.row(i)[c] = source >= 0 ? inputs.row(source)[c] : window.row(source + kept)[c];
  }
}

}  // namespace

void run_delta_prepare(const LaunchContext& context, const DeltaPrepareParams& p) {
  const Prepare args{p.shape,
                     p.shape.conv_channels(),
                     p.shape.key_width(),
                     p.shape.value_width(),
                     matrix<const float>(p.inputs),
                     matrix<const float>(p.window),
                     matrix<const float>(p.conv_weight),
                     matrix<const float>(p.a),
                     matrix<const float>(p.b),
                     p.a_log.row<const float>(0),
                     p.dt_bias.row<const float>(0),
                     matrix<float>(p.q),
                     matrix<float>(p.k),
                     matrix<float>(p.v),
                     matrix<float>(p.alpha),
                     matrix<float>(p.beta),
                     nm::inverse_root(p.shape.key_dim)};
  const int items = 2 * p.shape.key_heads + static_cast<int>(blocks_for(p.shape.value_width(), 32)) +
                    static_cast<int>(blocks_for(p.shape.value_heads, 32));
  launch(context, "delta_prepare", delta_prepare_kernel,
         {dim3(blocks_for(items, kWarps), static_cast<unsigned>(p.inputs.rows)), dim3(kThreads)}, args);
}

void run_delta_replay(const LaunchContext& context, const DeltaReplayParams& p) {
  const DeltaShape& s = p.shape;
  const std::int64_t elements = static_cast<std::int64_t>(s.value_heads) * s.key_dim * s.value_dim;
  const Replay args{s.key_dim,
                    s.value_dim,
                    s.value_heads / s.key_heads,
                    p.k.rows,
                    elements,
                    matrix<const float>(p.k),
                    matrix<const float>(p.u),
                    matrix<const float>(p.alpha),
                    matrix<float>(p.state)};
  launch(context, "delta_replay", delta_replay_kernel, {dim3(blocks_for(elements, kThreads)), dim3(kThreads)},
         args);
}

void run_advance_window(const LaunchContext& context, const AdvanceWindowParams& p) {
  launch(context, "advance_window", advance_window_kernel,
         {dim3(blocks_for(p.window.cols, kThreads)), dim3(kThreads)}, matrix<float>(p.window),
         matrix<const float>(p.inputs), p.window.rows, p.inputs.rows, p.window.cols);
}

}  // namespace mererun::cuda
