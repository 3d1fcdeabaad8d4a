#include "kernels/cuda/streams.h"

#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace streams_cu {

namespace nm = numerics;

constexpr int kThreads = 256;
constexpr int kRunWarps = 4;  // runs or streams of a block that takes one a warp
constexpr int kRunThreads = 32 * kRunWarps;

/// Element of a row that a thread of an elementwise kernel has.
__device__ __forceinline__ int element() { return static_cast<int>(blockIdx.x * kThreads + threadIdx.x); }
LaunchShape elements(int cols, int rows) {
  return {dim3(blocks_for(cols, kThreads), static_cast<unsigned>(rows)), dim3(kThreads)};
}
/// Run of a row that a warp has.
__device__ __forceinline__ int run_of_warp() {
  return static_cast<int>(blockIdx.x) * kRunWarps + static_cast<int>(threadIdx.x / 32);
}
LaunchShape runs(int count, int rows) {
  return {dim3(blocks_for(count, kRunWarps), static_cast<unsigned>(rows)), dim3(kRunThreads)};
}

__global__ void __launch_bounds__(kRunThreads)
    grouped_rms_norm_kernel(Matrix<const float> x, const float* weight, int groups, int n, float eps,
                            Matrix<float> out) {
  wait_for_predecessor();
  let_successor_start();
  const int group = run_of_warp();
  if (group >= groups) return;
  const int t = static_cast<int>(blockIdx.y);
  const float* run = x.row(t) + group * n;
  const float* w = weight + group * n;
  float* to = out.row(t) + group * n;
  const float sum = warp_reduce(n, [&](float acc, int i) { return nm::fma_f32(run[i], run[i], acc); });
  const float r = nm::rsqrt_f32(sum / static_cast<float>(n) + eps);
  for (int i = static_cast<int>(threadIdx.x & 31); i < n; i += 32) to[i] = (run[i] * r) * w[i];
}

__global__ void __launch_bounds__(kThreads)
    stream_silu_kernel(Matrix<const float> x, int n, Matrix<float> out) {
  wait_for_predecessor();
  let_successor_start();
  const int i = element();
  if (i >= n) return;
  const int t = static_cast<int>(blockIdx.y);
  out.row(t)[i] = nm::silu_f32(x.row(t)[i] * 0.25f);
}

__global__ void __launch_bounds__(kThreads)
    mix_streams_kernel(Matrix<const float> x, Matrix<const float> gate, int n, Matrix<float> out) {
  wait_for_predecessor();
  let_successor_start();
  const int d = element();
  if (d >= n) return;
  const int t = static_cast<int>(blockIdx.y);
  float a[kStreams];
#pragma unroll
  for (int c = 0; c < kStreams; ++c) a[c] = nm::sigmoid_f32(gate.row(t)[c * n + d]) * x.row(t)[c * n + d];
  out.row(t)[d] = ((a[0] + a[1]) + (a[2] + a[3])) * 0.25f;
}

__global__ void __launch_bounds__(kThreads)
    add_to_streams_kernel(Matrix<const float> y, Matrix<const float> inject, int n, Matrix<float> streams) {
  wait_for_predecessor();
  let_successor_start();
  const int i = element();
  if (i >= kStreams * n) return;
  const int t = static_cast<int>(blockIdx.y);
  const float strength = 2.0f * nm::sigmoid_f32(inject.row(t)[i / n] * 0.25f);
  float* stream = streams.row(t) + i;
  *stream = nm::fma_f32(strength, y.row(t)[i % n], *stream);
}

struct NgramGate {
  Matrix<const float> key, query, value;
  int n;
  float scale;
  Matrix<float> out;
};

/// One warp a stream.
__global__ void __launch_bounds__(kRunThreads) ngram_gate_kernel(NgramGate p) {
  wait_for_predecessor();
  let_successor_start();
  const int c = run_of_warp();
  const int t = static_cast<int>(blockIdx.y);
  const float* key = p.key.row(t) + c * p.n;
  const float* query = p.query.row(t) + c * p.n;
  const float* value = p.value.row(t);
  float* out = p.out.row(t) + c * p.n;
  const float dot = warp_reduce(p.n, [&](float acc, int i) { return nm::fma_f32(key[i], query[i], acc); });
  const float gate = nm::sigmoid_f32(nm::signed_root(dot * p.scale));
  for (int i = static_cast<int>(threadIdx.x & 31); i < p.n; i += 32) out[i] = gate * value[i];
}

struct NgramConv {
  Matrix<const float> inputs, window, weight, gated;
  int cols, taps, past, dilation;
  Matrix<float> residual;
};

__global__ void __launch_bounds__(kThreads) ngram_conv_kernel(NgramConv p) {
  wait_for_predecessor();
  let_successor_start();
  const int i = element();
  if (i >= p.cols) return;
  const int t = static_cast<int>(blockIdx.y);
  float acc = 0;
  for (int j = 0; j < p.taps; ++j) {
    const int source = t - p.dilation * (p.taps - 1 - j);  // row of `inputs`; negative: in the window
    const float x = source >= 0 ? p.inputs.row(source)[i] : p.window.row(source + p.past)[i];
    acc = nm::fma_f32(p.weight.row(j)[i], x, acc);
  }
  float* residual = p.residual.row(t) + i;
  *residual = *residual + (p.gated.row(t)[i] + nm::silu_f32(acc));
}

}  // namespace streams_cu

void run_grouped_rms_norm(const LaunchContext& context, const GroupedRmsNormParams& p) {
  launch(context, "grouped_rms_norm", grouped_rms_norm_kernel, runs(p.groups, p.x.rows),
         matrix<const float>(p.x), p.weight.row<const float>(0), p.groups, p.x.cols / p.groups, p.eps,
         matrix<float>(p.out));
}

void run_stream_silu(const LaunchContext& context, const StreamSiluParams& p) {
  launch(context, "stream_silu", stream_silu_kernel, elements(p.out.cols, p.out.rows),
         matrix<const float>(p.x), p.out.cols, matrix<float>(p.out));
}

void run_mix_streams(const LaunchContext& context, const MixStreamsParams& p) {
  launch(context, "mix_streams", mix_streams_kernel, elements(p.out.cols, p.out.rows),
         matrix<const float>(p.x), matrix<const float>(p.gate), p.out.cols, matrix<float>(p.out));
}

void run_add_to_streams(const LaunchContext& context, const AddToStreamsParams& p) {
  launch(context, "add_to_streams", add_to_streams_kernel, elements(p.streams.cols, p.streams.rows),
         matrix<const float>(p.y), matrix<const float>(p.inject), p.y.cols, matrix<float>(p.streams));
}

void run_ngram_gate(const LaunchContext& context, const NgramGateParams& p) {
  const NgramGate args{matrix<const float>(p.key),     matrix<const float>(p.query),
                       matrix<const float>(p.value),   p.value.cols,
                       nm::inverse_root(p.value.cols), matrix<float>(p.out)};
  launch(context, "ngram_gate", ngram_gate_kernel, runs(kStreams, p.value.rows), args);
}

void run_ngram_conv(const LaunchContext& context, const NgramConvParams& p) {
  const NgramConv args{matrix<const float>(p.inputs),
                       matrix<const float>(p.window),
                       matrix<const float>(p.weight),
                       matrix<const float>(p.gated),
                       p.inputs.cols,
                       p.weight.rows,
                       p.window.rows,
                       p.dilation,
                       matrix<float>(p.residual)};
  launch(context, "ngram_conv", ngram_conv_kernel, elements(p.inputs.cols, p.inputs.rows), args);
}

}  // namespace mererun::cuda
