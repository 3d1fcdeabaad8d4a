#include "kernels/cuda/code_span.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gated_norm.cuh"
#include "kernels/cuda/rows.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace rows_cu {

namespace nm = numerics;

constexpr int kThreads = 256;

struct Norm {
  Matrix<const float> x;
  const float* weight;
  float eps;
  int n, rows;
  Matrix<float> out;
  ActivationCodes codes;  // of the result, or empty
};

/// Sum of a long row's squares and its root, by one block: thread j is lane j of 256. kHeld: elements of a
/// thread, all loaded at once; 0: rows of any length.
template <int kHeld>
__device__ __forceinline__ float root_of_row(const Norm& p, const float* row,
                                             float (&x)[kHeld > 0 ? kHeld : 1]) {
  __shared__ float lanes[kThreads];
  __shared__ float root;
  const int j = static_cast<int>(threadIdx.x);
  float acc = 0;
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int m = 0; m < kHeld; ++m) {
      const int i = j + m * kThreads;
      x[m] = i < p.n ? row[i] : 0.0f;
    }
#pragma unroll
    for (int m = 0; m < kHeld; ++m) {
      if (j + m * kThreads < p.n) acc = nm::fma_f32(x[m], x[m], acc);
    }
  } else {
    for (int i = j; i < p.n; i += kThreads) acc = nm::fma_f32(row[i], row[i], acc);
  }
  lanes[j] = acc;
  __syncthreads();
  if (j < 32) {  // warp 0 joins lanes j, j + 128; then + 64; then + 32; then within the warp
    float part[8];
#pragma unroll
    for (int m = 0; m < 8; ++m) part[m] = lanes[j + 32 * m];
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
#pragma unroll
      for (int m = 0; m < half; ++m) part[m] = part[m] + part[m + half];
    }
    const float sum = join_lanes(part[0]);
    if (j == 0) root = nm::rsqrt_f32(sum / static_cast<float>(p.n) + p.eps);
  }
  __syncthreads();
  return root;
}

/// Long rows, one block a row.
template <int kHeld>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(Norm p) {
  constexpr int kMost = kHeld > 0 ? kHeld : 1;
  const int j = static_cast<int>(threadIdx.x);
  float x[kMost], w[kMost];
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int m = 0; m < kHeld; ++m) w[m] = j + m * kThreads < p.n ? p.weight[j + m * kThreads] : 0.0f;
  }
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.x);
  const float* row = p.x.row(t);
  const float r = root_of_row<kHeld>(p, row, x);
  float* to = p.out.row(t);
  if constexpr (kHeld > 0) {
#pragma unroll
    for (int m = 0; m < kHeld; ++m) {
      if (j + m * kThreads < p.n) to[j + m * kThreads] = (x[m] * r) * w[m];
    }
  } else {
    for (int i = j; i < p.n; i += kThreads) to[i] = (row[i] * r) * p.weight[i];
  }
}

/// Long rows and their codes. Every block of a row takes the whole sum and finishes 8 spans of it: coding
/// waits on divisions, so it is spread over many warps. `out` is not `x`.
template <int kHeld>
__global__ void __launch_bounds__(kThreads) rms_norm_code_kernel(Norm p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int first =
      (static_cast<int>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x / 32)) * kCodeSpan;
  const int i = first + 4 * lane;
  const bool live = i < p.n;
  float w[4] = {0, 0, 0, 0}, values[4] = {0, 0, 0, 0};
  if (live) {
#pragma unroll
    for (int m = 0; m < 4; ++m) w[m] = p.weight[i + m];
  }
  if (p.codes.starts_early()) let_successor_start();
  wait_for_predecessor();
  if (!p.codes.starts_early()) let_successor_start();
  const int t = static_cast<int>(blockIdx.y);
  const float* row = p.x.row(t);
  float own[4] = {0, 0, 0, 0};
  if (live) {
#pragma unroll
    for (int m = 0; m < 4; ++m) own[m] = row[i + m];
  }
  float x[kHeld > 0 ? kHeld : 1];
  const float r = root_of_row<kHeld>(p, row, x);
  if (first >= p.n) return;
  if (live) {
    float* to = p.out.row(t) + i;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      values[m] = (own[m] * r) * w[m];
      to[m] = values[m];
    }
  }
  code_span(p.codes, t, first, values, live);
}

/// Short rows: one warp a row of 32 lanes.
__global__ void __launch_bounds__(kThreads) rms_norm_short_kernel(Norm p) {
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
  if (t >= p.rows) return;
  const float* row = p.x.row(t);
  float* to = p.out.row(t);
  const float sum = warp_reduce(p.n, [&](float acc, int i) { return nm::fma_f32(row[i], row[i], acc); });
  const float r = nm::rsqrt_f32(sum / static_cast<float>(p.n) + p.eps);
  for (int i = static_cast<int>(threadIdx.x & 31); i < p.n; i += 32) to[i] = (row[i] * r) * p.weight[i];
}

struct GatedNorm {
  Matrix<const float> x, z;
  const float* weight;
  Matrix<float> out;
  int heads, dim, rows;
  float eps;
  ActivationCodes codes;  // of the result, or empty: heads of kCodeSpan only
};

/// One warp a head. kHeld: elements of a lane, all loaded at once; 0: heads of any length.
template <GateActivation kActivation, int kHeld>
__global__ void __launch_bounds__(kThreads) gated_rms_norm_kernel(GatedNorm p) {
  __shared__ float heads[kThreads / 32][32 * (kHeld > 0 ? kHeld : 1)];
  wait_for_predecessor();
  let_successor_start();
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int item = static_cast<int>(blockIdx.x) * (kThreads / 32) + warp;
  if (item >= p.rows * p.heads) return;
  const int t = item / p.heads;
  const int offset = item % p.heads * p.dim;
  const float* x = p.x.row(t) + offset;
  const float* z = p.z.row(t) + offset;
  float* out = p.out.row(t) + offset;
  if constexpr (kHeld == 0) {
    const float sum = warp_reduce(p.dim, [&](float acc, int i) { return nm::fma_f32(x[i], x[i], acc); });
    const float r = nm::rsqrt_f32(sum / static_cast<float>(p.dim) + p.eps);
    for (int i = lane; i < p.dim; i += 32) out[i] = ((x[i] * r) * p.weight[i]) * activated<kActivation>(z[i]);
  } else {
    float held[kHeld], gate[kHeld], weight[kHeld];
#pragma unroll
    for (int m = 0; m < kHeld; ++m) {
      held[m] = x[lane + 32 * m];
      gate[m] = z[lane + 32 * m];
      weight[m] = p.weight[lane + 32 * m];
    }
    norm_head<kActivation>(held, gate, weight, p.eps);
#pragma unroll
    for (int m = 0; m < kHeld; ++m) out[lane + 32 * m] = held[m];
    if (p.codes.codes != nullptr) code_head(p.codes, t, offset, held, heads[warp]);
  }
}

struct Swiglu {
  Matrix<const float> gate, up;
  Matrix<float> out;  // may be gate or up
  ActivationCodes codes;
};

/// Swiglu and its codes, a warp a span: for the linear that reads it.
__global__ void __launch_bounds__(kThreads) swiglu_code_kernel(const __grid_constant__ Swiglu p) {
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.x);
  const int first =
      (static_cast<int>(blockIdx.y) * (kThreads / 32) + static_cast<int>(threadIdx.x / 32)) * kCodeSpan;
  if (first >= p.codes.in) return;
  const int i = first + 4 * static_cast<int>(threadIdx.x & 31);
  const bool live = i < p.codes.in;
  float values[4] = {0, 0, 0, 0};
  if (live) {
    float gate[4], up[4];
    load_four(p.gate.row(t) + i, gate);
    load_four(p.up.row(t) + i, up);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = nm::silu_f32(gate[j]) * up[j];
    store_four(p.out.row(t) + i, values);
  }
  code_span(p.codes, t, first, values, live);
}

__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(Matrix<const float> gate, Matrix<const float> up, int n, Matrix<float> out) {
  wait_for_predecessor();
  let_successor_start();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= n) return;
  const int t = static_cast<int>(blockIdx.y);
  out.row(t)[i] = nm::silu_f32(gate.row(t)[i]) * up.row(t)[i];
}

__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(Matrix<const float> a, Matrix<const float> b, int n, Matrix<float> out) {
  wait_for_predecessor();
  let_successor_start();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= n) return;
  const int t = static_cast<int>(blockIdx.y);
  out.row(t)[i] = a.row(t)[i] + b.row(t)[i];
}

/// Whole vectors of T, then the bytes left over by the first block.
template <typename T>
__global__ void __launch_bounds__(kThreads) copy_kernel(T* to, const T* from, std::size_t bytes) {
  wait_for_predecessor();
  let_successor_start();
  const std::size_t count = bytes / sizeof(T);
  const std::size_t i = blockIdx.x * static_cast<std::size_t>(kThreads) + threadIdx.x;
  if (i < count) to[i] = from[i];
  const std::size_t rest = count * sizeof(T) + threadIdx.x;
  if (blockIdx.x == 0 && rest < bytes)
    reinterpret_cast<unsigned char*>(to)[rest] = reinterpret_cast<const unsigned char*>(from)[rest];
}

/// Index of an element as a part's first result: -1 for NaN and +infinity, which no row may hold.
__device__ int numeric_index(float x, int i) { return x < nm::from_bits(0x7f800000u) ? i : -1; }

/// The better of two: index -1 before all, the larger value, the lower index.
__device__ ArgmaxPart better(ArgmaxPart a, ArgmaxPart b) {
  if (a.index < 0) return a;
  if (b.index < 0) return b;
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
  return a;
}

__device__ ArgmaxPart best_of_block(ArgmaxPart mine) {
  __shared__ ArgmaxPart warps[kThreads / 32];
  const int j = static_cast<int>(threadIdx.x);
  for (int step = 16; step > 0; step /= 2) {
    const ArgmaxPart other{__shfl_down_sync(kAllLanes, mine.value, step),
                           __shfl_down_sync(kAllLanes, mine.index, step)};
    mine = better(mine, other);
  }
  if (j % 32 == 0) warps[j / 32] = mine;
  __syncthreads();
  if (j == 0) {
    for (int w = 1; w < kThreads / 32; ++w) mine = better(mine, warps[w]);
  }
  return mine;
}

/// Elements [first, first + span) of a row by one block. Threads without an element repeat the first one.
__global__ void __launch_bounds__(kThreads)
    argmax_part_kernel(Matrix<const float> logits, int n, int span, ArgmaxPart* parts) {
  wait_for_predecessor();
  let_successor_start();
  const float* row = logits.row(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * span;
  const int end = first + span < n ? first + span : n;
  ArgmaxPart best{row[first], first};
  best.index = numeric_index(best.value, first);
  for (int i = first + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const float x = row[i];
    best = better(best, ArgmaxPart{x, numeric_index(x, i)});
  }
  best = best_of_block(best);
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

__global__ void __launch_bounds__(kThreads) argmax_join_kernel(const ArgmaxPart* parts, int count, int* ids) {
  wait_for_predecessor();
  let_successor_start();
  const ArgmaxPart* row = parts + static_cast<std::int64_t>(blockIdx.x) * count;
  ArgmaxPart best = row[0];
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) best = better(best, row[i]);
  best = best_of_block(best);
  if (threadIdx.x == 0) ids[blockIdx.x] = best.index;
}

constexpr int kArgmaxSpan = 4096;  // elements of one block

}  // namespace rows_cu

bool can_code_rms_norm(int columns) { return nm::reduction_lanes(columns) == kThreads; }
bool can_code_gated_rms_norm(int dim) { return dim == kCodeSpan; }

void run_rms_norm(const LaunchContext& context, const RmsNormParams& p, const ActivationCodes& codes) {
  const Norm args{matrix<const float>(p.x),
                  p.weight.row<const float>(0),
                  p.eps,
                  p.x.cols,
                  p.x.rows,
                  matrix<float>(p.out),
                  codes};
  if (nm::reduction_lanes(p.x.cols) != kThreads) {
    launch(context, "rms_norm", rms_norm_short_kernel,
           {dim3(blocks_for(p.x.rows, kThreads / 32)), dim3(kThreads)}, args);
    return;
  }
  if (codes.codes != nullptr) {
    void (*kernel)(Norm) = rms_norm_code_kernel<0>;
    if (p.x.cols <= 24 * kThreads) kernel = rms_norm_code_kernel<24>;
    if (p.x.cols <= 8 * kThreads) kernel = rms_norm_code_kernel<8>;
    launch(context, "rms_norm", kernel,
           {dim3(blocks_for(p.x.cols, kCodeSpan * kThreads / 32), static_cast<unsigned>(p.x.rows)),
            dim3(kThreads)},
           args);
    return;
  }
  void (*kernel)(Norm) = rms_norm_kernel<0>;
  if (p.x.cols <= 24 * kThreads) kernel = rms_norm_kernel<24>;
  if (p.x.cols <= 8 * kThreads) kernel = rms_norm_kernel<8>;
  launch(context, "rms_norm", kernel, {dim3(static_cast<unsigned>(p.x.rows)), dim3(kThreads)}, args);
}

void run_gated_rms_norm(const LaunchContext& context, const GatedRmsNormParams& p,
                        const ActivationCodes& codes) {
  const GatedNorm args{matrix<const float>(p.x),
                       matrix<const float>(p.z),
                       p.weight.row<const float>(0),
                       matrix<float>(p.out),
                       p.heads,
                       p.weight.cols,
                       p.x.rows,
                       p.eps,
                       codes};
  const LaunchShape shape{dim3(blocks_for(static_cast<std::int64_t>(p.x.rows) * p.heads, kThreads / 32)),
                          dim3(kThreads)};
  const bool silu = p.activation == GateActivation::kSilu;
  constexpr auto kSilu = GateActivation::kSilu;
  constexpr auto kSigmoid = GateActivation::kSigmoid;
  void (*kernel)(GatedNorm) = silu ? gated_rms_norm_kernel<kSilu, 0> : gated_rms_norm_kernel<kSigmoid, 0>;
  if (p.weight.cols == 128)
    kernel = silu ? gated_rms_norm_kernel<kSilu, 4> : gated_rms_norm_kernel<kSigmoid, 4>;
  launch(context, "gated_rms_norm", kernel, shape, args);
}

void run_swiglu(const LaunchContext& context, const SwigluParams& p, const ActivationCodes& codes) {
  if (codes.codes != nullptr) {
    launch(context, "swiglu", swiglu_code_kernel,
           {dim3(static_cast<unsigned>(p.out.rows), blocks_for(p.out.cols, kCodeSpan * kThreads / 32)),
            dim3(kThreads)},
           Swiglu{matrix<const float>(p.gate), matrix<const float>(p.up), matrix<float>(p.out), codes});
    return;
  }
  const LaunchShape shape{dim3(blocks_for(p.out.cols, kThreads), static_cast<unsigned>(p.out.rows)),
                          dim3(kThreads)};
  launch(context, "swiglu", swiglu_kernel, shape, matrix<const float>(p.gate), matrix<const float>(p.up),
         p.out.cols, matrix<float>(p.out));
}

void run_add_rows(const LaunchContext& context, const AddRowsParams& p) {
  const LaunchShape shape{dim3(blocks_for(p.out.cols, kThreads), static_cast<unsigned>(p.out.rows)),
                          dim3(kThreads)};
  launch(context, "add_rows", add_rows_kernel, shape, matrix<const float>(p.a), matrix<const float>(p.b),
         p.out.cols, matrix<float>(p.out));
}

void run_copy_bytes(const LaunchContext& context, void* to, const void* from, std::size_t bytes) {
  const auto copy = [&]<typename T>(T*) {
    launch(context, "copy", copy_kernel<T>,
           {dim3(blocks_for(static_cast<std::int64_t>(bytes / sizeof(T)) + 1, kThreads)), dim3(kThreads)},
           static_cast<T*>(to), static_cast<const T*>(from), bytes);
  };
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bits % sizeof(uint4) == 0) {
    copy(static_cast<uint4*>(nullptr));
  } else {
    copy(static_cast<unsigned char*>(nullptr));
  }
}

int argmax_parts(int columns) { return static_cast<int>(blocks_for(columns, kArgmaxSpan)); }

void run_argmax_rows(const LaunchContext& context, const ArgmaxRowsParams& p, ArgmaxPart* parts) {
  const int count = argmax_parts(p.logits.cols);
  const auto rows = static_cast<unsigned>(p.logits.rows);
  launch(context, "argmax_rows", argmax_part_kernel,
         {dim3(static_cast<unsigned>(count), rows), dim3(kThreads)}, matrix<const float>(p.logits),
         p.logits.cols, kArgmaxSpan, parts);
  launch(context, "argmax_rows", argmax_join_kernel, {dim3(rows), dim3(kThreads)}, parts, count,
         p.ids.row<int>(0));
}

}  // namespace mererun::cuda
