#include "kernels/cuda/delta.h"

#include <algorithm>

#include "kernels/cuda/delta_conv.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace delta_cu {

namespace nm = numerics;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

bool is_aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

struct Prepare {
  DeltaShape shape;
  int channels, key_width, value_width;
  DeltaInputs in;
  Matrix<float> q, k, v, alpha, beta;
};

/// Convolution and SiLU of one channel of row t.
__device__ float convolved(const Prepare& p, int t, int channel) {
  const int taps = p.shape.conv_taps;
  float acc = 0;
#pragma unroll 4
  for (int j = 0; j < taps; ++j) {
    const int source = t - taps + 1 + j;  // row of `inputs`; negative: in the window
    const float x =
        source >= 0 ? p.in.rows.row(source)[channel] : p.in.window.row(source + taps - 1)[channel];
    acc = nm::fma_f32(p.in.conv.row(j)[channel], x, acc);
  }
  return nm::silu_f32(acc);
}

__device__ __forceinline__ void prepare_gates(const Prepare& p, int t, int head) {
  p.alpha.row(t)[head] = nm::delta_decay(p.in.a_log[head], p.in.a.row(t)[head], p.in.dt_bias[head]);
  p.beta.row(t)[head] = nm::sigmoid_f32(p.in.b.row(t)[head]);
}

/// The usual shape, heads of 128 and 4 taps. One warp: a query head, a key head, 128 value channels, or 32
/// gates of one row.
__global__ void __launch_bounds__(kThreads) delta_prepare_usual_kernel(Prepare p) {
  const int t = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int item = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int heads = p.shape.key_heads;
  const int blocks = p.channels / kUsualDim;  // queries, keys, values
  const int first = item * kUsualDim + lane;
  HeadTaps taps = {};
  if (item < blocks) load_taps(p.in, first, taps);
  wait_for_predecessor();
  let_successor_start();
  if (item < blocks) {
    HeadValues x;
    convolve(p.in, t, first, taps, x);
    if (item < 2 * heads) norm_key(x, item < heads, p.in.query_scale);
    float* out = item < heads       ? p.q.row(t) + first
                 : item < 2 * heads ? p.k.row(t) + (first - p.key_width)
                                    : p.v.row(t) + (first - 2 * p.key_width);
#pragma unroll
    for (int m = 0; m < kUsualHeld; ++m) out[32 * m] = x[m];
    return;
  }
  const int h = (item - blocks) * 32 + lane;
  if (h >= p.shape.value_heads) return;
  prepare_gates(p, t, h);
}

/// Any shape. One warp: a query head, a key head, 32 value channels, or 32 gates of one row.
__global__ void __launch_bounds__(kThreads) delta_prepare_kernel(Prepare p) {
  wait_for_predecessor();
  let_successor_start();
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
    // Each lane writes and reads back its own elements.
    const float sum = warp_reduce(dim, [&](float acc, int i) {
      const float x = convolved(p, t, first + i);
      out[i] = x;
      return nm::fma_f32(x, x, acc);
    });
    const float norm = nm::rsqrt_f32(sum + nm::kL2NormEps);
    for (int i = lane; i < dim; i += 32) {
      const float unit = out[i] * norm;
      out[i] = is_query ? unit * p.in.query_scale : unit;
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
  prepare_gates(p, t, h);
}

/// Logged rows and states of up to kMostReplays layers of one shape.
struct Replays {
  int key_dim, value_dim, heads_per_key, rows;
  std::int64_t elements;  // of one state
  std::int64_t k_stride, u_stride, alpha_stride, state_stride;
  struct Layer {
    const float *k, *u, *alpha;
    float* state;
  };
  Layer layers[kMostReplays];
};

/// kCount neighbouring elements of a state's row through all logged rows.
template <int kCount>
__global__ void __launch_bounds__(kThreads) delta_replay_kernel(const __grid_constant__ Replays p) {
  struct alignas(4 * kCount) Values {
    float at[kCount];
  };
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t item = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (item >= p.elements) return;
  const Replays::Layer& layer = p.layers[blockIdx.y];
  const int c = static_cast<int>(item % p.value_dim);
  const int row = static_cast<int>(item / p.value_dim);
  const int head = row / p.key_dim;
  const int key = head / p.heads_per_key * p.key_dim + row % p.key_dim;
  const float* alpha = layer.alpha + head;
  const float* u = layer.u + head * p.value_dim + c;
  const float* k = layer.k + key;
  auto* at = reinterpret_cast<Values*>(layer.state + row * p.state_stride + c);
  Values s = *at;
#pragma unroll 4
  for (int t = 0; t < p.rows; ++t) {
    const float decay = alpha[t * p.alpha_stride], key_value = k[t * p.k_stride];
    const Values update = *reinterpret_cast<const Values*>(u + t * p.u_stride);
#pragma unroll
    for (int j = 0; j < kCount; ++j) s.at[j] = nm::fma_f32(update.at[j], key_value, decay * s.at[j]);
  }
  *at = s;
}

struct Windows {
  int kept, rows, channels;
  std::int64_t window_stride, inputs_stride;
  struct Layer {
    float* window;
    const float* inputs;
  };
  Layer layers[kMostReplays];
};

/// One channel of a window, oldest row first: a row is read before it is overwritten.
__global__ void __launch_bounds__(kThreads) advance_window_kernel(const __grid_constant__ Windows p) {
  wait_for_predecessor();
  let_successor_start();
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= p.channels) return;
  float* window = p.layers[blockIdx.y].window + c;
  const float* inputs = p.layers[blockIdx.y].inputs + c;
  for (int i = 0; i < p.kept; ++i) {
    const int source = i + p.rows - p.kept;  // row of `inputs`; negative: in the old window
    window[i * p.window_stride] =
        source >= 0 ? inputs[source * p.inputs_stride] : window[(source + p.kept) * p.window_stride];
  }
}

}  // namespace delta_cu

void run_delta_prepare(const LaunchContext& context, const DeltaPrepareParams& p) {
  const Prepare args{p.shape,
                     p.shape.conv_channels(),
                     p.shape.key_width(),
                     p.shape.value_width(),
                     delta_inputs(p),
                     matrix<float>(p.q),
                     matrix<float>(p.k),
                     matrix<float>(p.v),
                     matrix<float>(p.alpha),
                     matrix<float>(p.beta)};
  if (is_usual(p.shape)) {
    const int items = args.channels / kUsualDim + static_cast<int>(blocks_for(p.shape.value_heads, 32));
    launch(context, "delta_prepare", delta_prepare_usual_kernel,
           {dim3(blocks_for(items, kWarps), static_cast<unsigned>(p.inputs.rows)), dim3(kThreads)}, args);
    return;
  }
  const int items = 2 * p.shape.key_heads + static_cast<int>(blocks_for(p.shape.value_width(), 32)) +
                    static_cast<int>(blocks_for(p.shape.value_heads, 32));
  launch(context, "delta_prepare", delta_prepare_kernel,
         {dim3(blocks_for(items, kWarps), static_cast<unsigned>(p.inputs.rows)), dim3(kThreads)}, args);
}

void run_delta_replay(const LaunchContext& context, std::span<const DeltaReplayParams> layers) {
  const DeltaReplayParams& one = layers[0];
  const DeltaShape& s = one.shape;
  Replays args{};
  args.key_dim = s.key_dim;
  args.value_dim = s.value_dim;
  args.heads_per_key = s.value_heads / s.key_heads;
  args.rows = one.k.rows;
  args.elements = static_cast<std::int64_t>(s.value_heads) * s.key_dim * s.value_dim;
  args.k_stride = one.k.row_stride;
  args.u_stride = one.u.row_stride;
  args.alpha_stride = one.alpha.row_stride;
  args.state_stride = one.state.row_stride;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const DeltaReplayParams& p = layers[i];
    args.layers[i] = {p.k.row<const float>(0), p.u.row<const float>(0), p.alpha.row<const float>(0),
                      p.state.row<float>(0)};
  }
  constexpr int kVector = 4;
  const bool is_whole =
      s.value_dim % kVector == 0 && args.u_stride % kVector == 0 && args.state_stride % kVector == 0 &&
      std::all_of(layers.begin(), layers.end(), [](const DeltaReplayParams& p) {
        return is_aligned(p.u.data, sizeof(float4)) && is_aligned(p.state.data, sizeof(float4));
      });
  const int count = is_whole ? kVector : 1;
  launch(context, "delta_replay", is_whole ? delta_replay_kernel<kVector> : delta_replay_kernel<1>,
         {dim3(blocks_for(args.elements, kThreads * count), static_cast<unsigned>(layers.size())),
          dim3(kThreads)},
         args);
}

bool same_shape(const DeltaReplayParams& a, const DeltaReplayParams& b) {
  return a.shape.key_heads == b.shape.key_heads && a.shape.value_heads == b.shape.value_heads &&
         a.shape.key_dim == b.shape.key_dim && a.shape.value_dim == b.shape.value_dim &&
         a.k.rows == b.k.rows && a.k.row_stride == b.k.row_stride && a.u.row_stride == b.u.row_stride &&
         a.alpha.row_stride == b.alpha.row_stride && a.state.row_stride == b.state.row_stride;
}

void run_advance_window(const LaunchContext& context, std::span<const AdvanceWindowParams> layers) {
  const AdvanceWindowParams& one = layers[0];
  Windows args{};
  args.kept = one.window.rows;
  args.rows = one.inputs.rows;
  args.channels = one.window.cols;
  args.window_stride = one.window.row_stride;
  args.inputs_stride = one.inputs.row_stride;
  for (std::size_t i = 0; i < layers.size(); ++i)
    args.layers[i] = {layers[i].window.row<float>(0), layers[i].inputs.row<const float>(0)};
  launch(context, "advance_window", advance_window_kernel,
         {dim3(blocks_for(one.window.cols, kThreads), static_cast<unsigned>(layers.size())), dim3(kThreads)},
         args);
}

bool same_shape(const AdvanceWindowParams& a, const AdvanceWindowParams& b) {
  return a.window.rows == b.window.rows && a.window.cols == b.window.cols && a.inputs.rows == b.inputs.rows &&
         a.window.row_stride == b.window.row_stride && a.inputs.row_stride == b.inputs.row_stride;
}

}  // namespace mererun::cuda
