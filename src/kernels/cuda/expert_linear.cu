#include "kernels/cuda/expert_linear.h"
#include "kernels/cuda/expert_work.cuh"

namespace mererun::cuda {

CodeOrder expert_code_order(const LaunchContext& context, const AffineView& weight, const ExpertList& list) {
  const bool fits =
      list.width == kWideEntry && weight.stored_bits == 4 && has_warpgroup_kernel(context, weight);
  return fits ? CodeOrder::kPlanes : CodeOrder::kLanes;
}

void run_affine_experts(const LaunchContext& context, const AffineView& weight, const ExpertList& list,
                        ExpertRows rows, const ActivationCodes& x, const TensorView& out) {
  const ExpertWork work = make_expert_work(weight, nullptr, list, rows, out);
  if (x.order == CodeOrder::kPlanes) return run_experts_warpgroups(context, weight, work, x);
  const bool is_common = weight.is_common() && weight.stored_bits == 4;
  if (is_common && list.width == 8) {
    launch_gathered<1, 1, 4, true, false>(context, weight, work, x);
  } else if (is_common) {
    launch_expert_tiles<false>(context, weight, work, x);
  } else if (weight.stored_bits == 4) {
    launch_gathered<4, 1, 4, false, false>(context, weight, work, x);
  } else {
    launch_gathered<4, 1, 8, false, false>(context, weight, work, x);
  }
}

}  // namespace mererun::cuda
