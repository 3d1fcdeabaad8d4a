#include "kernels/cuda/expert_linear.h"
#include "kernels/cuda/expert_work.cuh"

namespace mererun::cuda {

void run_affine_experts_gated(const LaunchContext& context, const AffineView& gate, const AffineView& up,
                              const ExpertList& list, const ActivationCodes& x, const TensorView& out) {
  const ExpertWork work = make_expert_work(gate, &up, list, ExpertRows::kToken, out);
  if (x.order == CodeOrder::kPlanes) return run_experts_gated_warpgroups(context, gate, work, x);
  if (x.order == CodeOrder::kRows) return launch_experts_narrow<true>(context, gate, work, x);
  launch_expert_tiles<true>(context, gate, work, x);
}

}  // namespace mererun::cuda
