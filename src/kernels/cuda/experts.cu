#include "kernels/cuda/device.cuh"
#include "kernels/cuda/experts.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

namespace {

namespace nm = numerics;

constexpr int kThreads = 256;

struct Route {
  Matrix<const float> logits;
  Matrix<const int> forced;
  Matrix<int> ids;
  Matrix<float> weights;
  int experts, chosen;
  bool normalise;
};

/// Value descending, id ascending, NaN last.
__device__ __forceinline__ bool ranks_before(float a, int i, float b, int j) {
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if (a_nan != b_nan) return b_nan;
  if (!a_nan && a != b) return a > b;
  return i < j;
}

/// Largest of terms[0..n), NaN never wins; called by one thread.
__device__ float largest(const float* x, int n) {
  float most = nm::from_bits(0xff800000u);
  for (int i = 0; i < n; ++i) most = nm::max_f32(most, x[i]);
  return most;
}

/// One block a row.
__global__ void __launch_bounds__(kThreads) route_kernel(Route p) {
  extern __shared__ float row[];  // [E] logits, [E] exponentials, [E] marks of the chosen
  __shared__ float most, denominator;
  let_successor_start();
  wait_for_predecessor();
  float* terms = row + p.experts;
  int* marks = reinterpret_cast<int*>(terms + p.experts);
  const int t = static_cast<int>(blockIdx.x);
  int* ids = p.ids.row(t);
  float* weights = p.weights.row(t);
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) row[e] = p.logits.row(t)[e];
  __syncthreads();
  if (p.forced.data != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < p.chosen; i += kThreads) ids[i] = p.forced.row(t)[i];
  } else {
    for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
      int before = 0;
      for (int other = 0; other < p.experts; ++other) {
        before += ranks_before(row[other], other, row[e], e) ? 1 : 0;
      }
      marks[e] = before < p.chosen ? 1 : 0;
    }
    __syncthreads();
    for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
      if (marks[e] == 0) continue;
      int at = 0;
      for (int other = 0; other < e; ++other) at += marks[other];
      ids[at] = e;
    }
  }
  __syncthreads();
  if (p.normalise) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < p.chosen; ++i) terms[i] = row[ids[i]];
      const float m = largest(terms, p.chosen);
      float sum = 0;
      for (int i = 0; i < p.chosen; ++i) {
        terms[i] = nm::exp_f32(terms[i] - m);
        sum = sum + terms[i];
      }
      for (int i = 0; i < p.chosen; ++i) weights[i] = terms[i] / sum;
    }
    return;
  }
  if (threadIdx.x == 0) most = largest(row, p.experts);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
    terms[e] = nm::exp_f32(row[e] - most);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = warp_reduce(p.experts, [&](float acc, int i) { return acc + terms[i]; });
    if (threadIdx.x == 0) denominator = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.chosen; i += kThreads) {
    weights[i] = terms[ids[i]] / denominator;
  }
}

struct Combine {
  Matrix<const float> y, weights, shared, shared_gate, residual;
  Matrix<float> out;
  const int* place;
  int chosen, hidden;
};

__global__ void __launch_bounds__(kThreads) combine_kernel(Combine p) {
  let_successor_start();
  wait_for_predecessor();
  const int n = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (n >= p.hidden) return;
  const int t = static_cast<int>(blockIdx.y);
  float acc = 0;
  for (int i = 0; i < p.chosen; ++i) {
    acc = nm::fma_f32(p.weights.row(t)[i], p.y.row(p.place[t * p.chosen + i])[n], acc);
  }
  if (p.shared.data != nullptr) {
    acc = nm::fma_f32(nm::sigmoid_f32(p.shared_gate.row(t)[0]), p.shared.row(t)[n], acc);
  }
  p.out.row(t)[n] = p.residual.row(t)[n] + acc;
}

}  // namespace

void run_route_experts(const LaunchContext& context, const RouteExpertsParams& p) {
  Route args{matrix<const float>(p.logits),
             {},
             matrix<int>(p.ids),
             matrix<float>(p.weights),
             p.logits.cols,
             p.ids.cols,
             p.normalise};
  if (!p.forced_ids.empty()) args.forced = matrix<const int>(p.forced_ids);
  const std::size_t bytes = 3 * sizeof(float) * static_cast<std::size_t>(p.logits.cols);
  if (bytes > 40 * 1024) allow_shared(route_kernel, bytes);
  launch(context, "route_experts", route_kernel,
         {dim3(static_cast<unsigned>(p.logits.rows)), dim3(kThreads), bytes}, args);
}

void run_combine_experts(const LaunchContext& context, const ExpertMlpParams& p, const ExpertList& list,
                         const TensorView& y) {
  Combine args{matrix<const float>(y),
               matrix<const float>(p.weights),
               {},
               {},
               matrix<const float>(p.residual),
               matrix<float>(p.out),
               list.place,
               list.chosen,
               p.out.cols};
  if (!p.shared.empty()) {
    args.shared = matrix<const float>(p.shared);
    args.shared_gate = matrix<const float>(p.shared_gate);
  }
  launch(context, "expert_mlp", combine_kernel,
         {dim3(blocks_for(p.out.cols, kThreads), static_cast<unsigned>(p.out.rows)), dim3(kThreads)}, args);
}

}  // namespace mererun::cuda
