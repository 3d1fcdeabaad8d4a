#include "kernels/cuda/expert_linear.h"
#include "kernels/cuda/expert_work.cuh"

namespace mererun::cuda {

CodeOrder expert_code_order(const LaunchContext& context, const AffineView& weight, const ExpertList& list) {
  if (!weight.is_common() || weight.stored_bits != 4) return CodeOrder::kLanes;
  if (list.width != kWideEntry) return CodeOrder::kRows;
  return has_warpgroup_kernel(context, weight) ? CodeOrder::kPlanes : CodeOrder::kLanes;
}

void run_affine_experts(const LaunchContext& context, const AffineView& weight, const ExpertList& list,
                        ExpertRows rows, const ActivationCodes& x, const TensorView& out) {
  const ExpertWork work = make_expert_work(weight, nullptr, list, rows, out);
  if (x.order == CodeOrder::kPlanes) return run_experts_warpgroups(context, weight, work, x);
  if (x.order == CodeOrder::kRows) return launch_experts_narrow<false>(context, weight, work, x);
  if (weight.is_common() && weight.stored_bits == 4) {
    launch_expert_tiles<false>(context, weight, work, x);
  } else if (weight.stored_bits == 4) {
    launch_gathered<4, 4>(context, weight, work, x);
  } else {
    launch_gathered<4, 8>(context, weight, work, x);
  }
}

}  // namespace mererun::cuda
