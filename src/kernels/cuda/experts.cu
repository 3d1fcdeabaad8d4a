#include "kernels/cuda/device.cuh"
#include "kernels/cuda/expert_math.cuh"
#include "kernels/cuda/experts.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace experts_cu {

namespace nm = numerics;

constexpr int kRouteWarps = 4, kThreads = 256;

/// One warp a row; in shared memory a warp has a key an expert and its chosen ids.
__global__ void __launch_bounds__(32 * kRouteWarps) route_kernel(RouteView p) {
  extern __shared__ std::uint32_t route_memory[];
  wait_for_predecessor();
  let_successor_start();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x & 31);
  const int t = static_cast<int>(blockIdx.x) * kRouteWarps + warp;
  if (t >= p.rows) return;
  std::uint32_t* keys = route_memory + warp * (p.experts + p.chosen);
  int* ids = reinterpret_cast<int*>(keys + p.experts);
  const float* row = p.logits.row(t);
  if (p.forced.data != nullptr) {
    for (int i = lane; i < p.chosen; i += 32) ids[i] = p.forced.row(t)[i];
    __syncwarp();
  } else {
    choose_experts(row, p.experts, p.chosen, keys, ids);
  }
  for (int i = lane; i < p.chosen; i += 32) p.ids.row(t)[i] = ids[i];
  weigh_experts(
      row, p.experts, p.chosen, p.normalise, [&](int i) { return ids[i]; }, p.weights.row(t));
}

struct Combine {
  Matrix<const float> y, weights, shared, shared_logits, residual;
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
  float acc = mix_experts(
      p.chosen, [&](int i) { return p.weights.row(t)[i]; },
      [&](int i) { return p.y.row(p.place[t * p.chosen + i])[n]; });
  if (p.shared.data != nullptr) {
    acc = nm::fma_f32(nm::sigmoid_f32(p.shared_logits.row(t)[0]), p.shared.row(t)[n], acc);
  }
  p.out.row(t)[n] = p.residual.row(t)[n] + acc;
}

}  // namespace experts_cu

RouteView route_view(const RouteExpertsParams& p) {
  RouteView view{matrix<const float>(p.logits),
                 {},
                 matrix<int>(p.ids),
                 matrix<float>(p.weights),
                 p.logits.rows,
                 p.logits.cols,
                 p.ids.cols,
                 p.normalise};
  if (!p.forced_ids.empty()) view.forced = matrix<const int>(p.forced_ids);
  return view;
}

void run_route_experts(const LaunchContext& context, const RouteExpertsParams& p) {
  const std::size_t bytes = kRouteWarps * sizeof(std::uint32_t) *
                            (static_cast<std::size_t>(p.logits.cols) + static_cast<std::size_t>(p.ids.cols));
  allow_shared(route_kernel, bytes);
  launch(context, "route_experts", route_kernel,
         {dim3(blocks_for(p.logits.rows, kRouteWarps)), dim3(32 * kRouteWarps), bytes}, route_view(p));
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
    args.shared_logits = matrix<const float>(p.shared.logits);
  }
  launch(context, "expert_mlp", combine_kernel,
         {dim3(blocks_for(p.out.cols, kThreads), static_cast<unsigned>(p.out.rows)), dim3(kThreads)}, args);
}

}  // namespace mererun::cuda
