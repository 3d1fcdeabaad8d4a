#include "kernels/cuda/affine_launch.cuh"
#include "kernels/cuda/affine_variants.h"
#include "kernels/cuda/linear_work.cuh"

namespace mererun::cuda {

void run_affine_any(const LaunchContext& context, AffineScratch& scratch,
                    std::span<const AffineTarget> targets, const ActivationCodes& x) {
  const auto make = [&]<int kRowTiles>(std::integral_constant<int, kRowTiles>) {
    return make_linear_work<kRowTiles>(targets);
  };
  if (targets[0].weight.stored_bits == 4) {
    run_staged<1, 4, false, false>(context, scratch, targets[0].weight, x, make);
  } else {
    run_staged<1, 8, false, false>(context, scratch, targets[0].weight, x, make);
  }
}

}  // namespace mererun::cuda
