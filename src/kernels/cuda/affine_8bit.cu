#include "kernels/cuda/affine_launch.cuh"
#include "kernels/cuda/affine_variants.h"
#include "kernels/cuda/linear_work.cuh"

namespace mererun::cuda {

void run_affine_8bit(const LaunchContext& context, AffineScratch& scratch,
                     std::span<const AffineTarget> targets, const ActivationCodes& x) {
  run_staged<1, 8, true, false>(context, scratch, targets[0].weight, x,
                                [&]<int kRowTiles>(std::integral_constant<int, kRowTiles>) {
                                  return make_linear_work<kRowTiles>(targets);
                                });
}

}  // namespace mererun::cuda
