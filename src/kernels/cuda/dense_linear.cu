#include "kernels/cuda/dense_linear.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/stored.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace dense_linear_cu {

namespace nm = numerics;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kColumns = 8;  // activation rows that share one pass over a weight row

struct Dense {
  DenseView weight;
  Matrix<const float> x, residual;
  Matrix<float> out;
  int rows;
};

/// Dot products of weight row n (of all experts) with up to kColumns rows; lane j takes elements 64i + 2j and
/// 64i + 2j + 1, ascending; lane 0 gets the results.
__device__ __forceinline__ void dot_rows(const DenseView& w, std::int64_t n,
                                         const float* const (&x)[kColumns], int count,
                                         float (&acc)[kColumns]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t base = n * w.in;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) acc[c] = 0;
  for (int i = 2 * lane; i < w.in; i += 64) {
    const float first = widened(w.rows, base + i, w.dtype);
    const bool pair = i + 1 < w.in;
    const float second = pair ? widened(w.rows, base + i + 1, w.dtype) : 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= count) break;
      acc[c] = nm::fma_f32(first, x[c][i], acc[c]);
      if (pair) acc[c] = nm::fma_f32(second, x[c][i + 1], acc[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) acc[c] = join_lanes(acc[c]);
}

/// One warp a weight row, over all activation rows.
__global__ void __launch_bounds__(kThreads) dense_kernel(Dense p) {
  wait_for_predecessor();
  let_successor_start();
  const int n = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (n >= p.weight.out) return;
  for (int first = 0; first < p.rows; first += kColumns) {
    const int count = p.rows - first < kColumns ? p.rows - first : kColumns;
    const float* x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[c] = p.x.row(first + (c < count ? c : 0));
    float acc[kColumns];
    dot_rows(p.weight, n, x, count, acc);
    if ((threadIdx.x & 31) != 0) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= count) break;
      const int t = first + c;
      p.out.row(t)[n] = p.residual.data == nullptr ? acc[c] : p.residual.row(t)[n] + acc[c];
    }
  }
}

/// One warp a weight row and assignment.
__global__ void __launch_bounds__(kThreads) dense_experts_kernel(Dense p, ExpertList list, ExpertRows rows) {
  wait_for_predecessor();
  let_successor_start();
  const int n = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (n >= p.weight.out) return;
  for (int place = static_cast<int>(blockIdx.y); place < list.assignments();
       place += static_cast<int>(gridDim.y)) {
    const int row = rows == ExpertRows::kToken ? list.source[place] / list.chosen : place;
    const float* x[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) x[c] = p.x.row(row);
    float acc[kColumns];
    dot_rows(p.weight, static_cast<std::int64_t>(list.expert[place]) * p.weight.out + n, x, 1, acc);
    if ((threadIdx.x & 31) == 0) p.out.row(place)[n] = acc[0];
  }
}

}  // namespace dense_linear_cu

void run_dense(const LaunchContext& context, const DenseView& weight, const TensorView& x,
               const TensorView& out, const TensorView& residual) {
  const Dense args{weight, matrix<const float>(x), matrix<const float>(residual), matrix<float>(out), x.rows};
  launch(context, "linear", dense_kernel, {dim3(blocks_for(weight.out, kWarps)), dim3(kThreads)}, args);
}

void run_dense_experts(const LaunchContext& context, const DenseView& weight, const ExpertList& list,
                       ExpertRows rows, const TensorView& x, const TensorView& out) {
  const Dense args{weight, matrix<const float>(x), {}, matrix<float>(out), x.rows};
  const int lines = list.assignments() < 4096 ? list.assignments() : 4096;
  launch(context, "expert_mlp", dense_experts_kernel,
         {dim3(blocks_for(weight.out, kWarps), static_cast<unsigned>(lines)), dim3(kThreads)}, args, list,
         rows);
}

}  // namespace mererun::cuda
