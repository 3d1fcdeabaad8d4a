#include "kernels/cuda/device.cuh"
#include "kernels/cuda/experts.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace experts_cu {

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

/// A number that orders by value descending, id ascending, NaN last: the larger one ranks first. No two
/// experts have the same.
__device__ __forceinline__ std::uint64_t rank_key(float x, int id) {
  const std::uint32_t bits = x == 0.0f ? 0u : nm::bits_of(x);  // -0 equals +0
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  const std::uint32_t value = x != x ? 0u : ordered;
  return static_cast<std::uint64_t>(value) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}

/// Largest of terms[0..n), NaN never wins; called by one thread.
__device__ float largest(const float* x, int n) {
  float most = nm::from_bits(0xff800000u);
  for (int i = 0; i < n; ++i) most = nm::max_f32(most, x[i]);
  return most;
}

/// Softmax over the chosen, by warp 0: lane i has the i-th; sums run in ascending order.
__device__ void weigh_chosen(const float* row, const int* chosen, int count, float* weights) {
  const int lane = static_cast<int>(threadIdx.x);
  const float x = lane < count ? row[chosen[lane]] : nm::from_bits(0xff800000u);
  float most = x != x ? nm::from_bits(0xff800000u) : x;
  for (int step = 16; step > 0; step /= 2) most = nm::max_f32(most, __shfl_xor_sync(kAllLanes, most, step));
  const float term = nm::exp_f32(x - most);
  float sum = 0;
  for (int i = 0; i < count; ++i) sum = sum + __shfl_sync(kAllLanes, term, i);
  if (lane < count) weights[lane] = term / sum;
}

/// The same for more than a warp, by one thread; `terms` is scratch.
__device__ void weigh_many(const float* row, const int* chosen, int count, float* terms, float* weights) {
  for (int i = 0; i < count; ++i) terms[i] = row[chosen[i]];
  const float m = largest(terms, count);
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    terms[i] = nm::exp_f32(terms[i] - m);
    sum = sum + terms[i];
  }
  for (int i = 0; i < count; ++i) weights[i] = terms[i] / sum;
}

/// Shared memory of a block: keys and logits, exponentials, chosen ids, marks of 32 experts each.
struct RouteShared {
  std::uint64_t* keys;
  float *row, *terms;
  int* chosen;
  std::uint32_t* marks;

  __device__ RouteShared(std::uint64_t* memory, int experts) {
    keys = memory;
    row = reinterpret_cast<float*>(keys + experts);
    terms = row + experts;
    chosen = reinterpret_cast<int*>(terms + experts);
    marks = reinterpret_cast<std::uint32_t*>(chosen + experts);
  }
  static std::size_t bytes(int experts) {
    const auto n = static_cast<std::size_t>(experts);
    return n * (sizeof(std::uint64_t) + 3 * sizeof(float)) + (n + 31) / 32 * sizeof(std::uint32_t);
  }
};

/// Ids of the experts that rank among the first, ascending, into s.chosen.
__device__ void choose(const Route& p, const RouteShared& s) {
  const int padded = (p.experts + 31) & ~31;
  for (int e = static_cast<int>(threadIdx.x); e < padded; e += kThreads) {
    int before = 0;
    if (e < p.experts) {
      const std::uint64_t own = s.keys[e];
#pragma unroll 8
      for (int other = 0; other < p.experts; ++other) before += s.keys[other] > own ? 1 : 0;
    }
    const std::uint32_t marks = __ballot_sync(kAllLanes, e < p.experts && before < p.chosen);
    if (e % 32 == 0) s.marks[e / 32] = marks;
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
    const std::uint32_t marks = s.marks[e / 32];
    if ((marks >> (e % 32) & 1u) == 0) continue;
    int at = __popc(marks & ((1u << (e % 32)) - 1));
    for (int w = 0; w < e / 32; ++w) at += __popc(s.marks[w]);
    s.chosen[at] = e;
  }
}

/// One block a row.
__global__ void __launch_bounds__(kThreads) route_kernel(Route p) {
  extern __shared__ __align__(16) std::uint64_t route_memory[];
  __shared__ float most, denominator;
  const RouteShared s(route_memory, p.experts);
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.x);
  float* weights = p.weights.row(t);
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
    const float x = p.logits.row(t)[e];
    s.row[e] = x;
    s.keys[e] = rank_key(x, e);
  }
  __syncthreads();
  if (p.forced.data != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < p.chosen; i += kThreads) s.chosen[i] = p.forced.row(t)[i];
  } else {
    choose(p, s);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.chosen; i += kThreads) p.ids.row(t)[i] = s.chosen[i];
  if (p.normalise) {
    if (p.chosen <= 32) {
      if (threadIdx.x < 32) weigh_chosen(s.row, s.chosen, p.chosen, weights);
    } else if (threadIdx.x == 0) {
      weigh_many(s.row, s.chosen, p.chosen, s.terms, weights);
    }
    return;
  }
  if (threadIdx.x == 0) most = largest(s.row, p.experts);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < p.experts; e += kThreads) {
    s.terms[e] = nm::exp_f32(s.row[e] - most);
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = warp_reduce(p.experts, [&](float acc, int i) { return acc + s.terms[i]; });
    if (threadIdx.x == 0) denominator = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.chosen; i += kThreads) {
    weights[i] = s.terms[s.chosen[i]] / denominator;
  }
}

struct Combine {
  Matrix<const float> y, weights, shared, shared_gate, residual;
  Matrix<float> out;
  const int* place;
  int chosen, hidden;
};

__global__ void __launch_bounds__(kThreads) combine_kernel(Combine p) {
  wait_for_predecessor();
  let_successor_start();
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

}  // namespace experts_cu

void run_route_experts(const LaunchContext& context, const RouteExpertsParams& p) {
  Route args{matrix<const float>(p.logits),
             {},
             matrix<int>(p.ids),
             matrix<float>(p.weights),
             p.logits.cols,
             p.ids.cols,
             p.normalise};
  if (!p.forced_ids.empty()) args.forced = matrix<const int>(p.forced_ids);
  const std::size_t bytes = RouteShared::bytes(p.logits.cols);
  allow_shared(route_kernel, bytes);
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
    args.shared = matrix<const float>(p.shared.out_scratch);
    args.shared_gate = matrix<const float>(p.shared.logits);
  }
  launch(context, "expert_mlp", combine_kernel,
         {dim3(blocks_for(p.out.cols, kThreads), static_cast<unsigned>(p.out.rows)), dim3(kThreads)}, args);
}

}  // namespace mererun::cuda
