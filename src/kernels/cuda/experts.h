#pragma once

#include "kernels/cuda/expert_list.h"
#include "kernels/cuda/launch.h"
#include "kernels/experts.h"

namespace mererun::cuda {

/// RouteExpertsParams as kernels see them.
struct RouteView {
  Matrix<const float> logits;
  Matrix<const int> forced;
  Matrix<int> ids;
  Matrix<float> weights;
  int rows, experts, chosen;
  bool normalise;
};
RouteView route_view(const RouteExpertsParams& p);

/// Chooses experts; params have been validated and hold at least one row.
void run_route_experts(const LaunchContext& context, const RouteExpertsParams& p);

/// out[t] = residual[t] + (weighted sum of y over the row's experts, ascending, and of the shared expert).
/// `y` [T * k, H] holds one row per place of the list.
void run_combine_experts(const LaunchContext& context, const ExpertMlpParams& p, const ExpertList& list,
                         const TensorView& y);

}  // namespace mererun::cuda
