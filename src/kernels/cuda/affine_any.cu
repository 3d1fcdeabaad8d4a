#include "kernels/cuda/affine_variants.h"
#include "kernels/cuda/linear_work.cuh"

namespace mererun::cuda {

void run_affine_any(const LaunchContext& context, AffineScratch& scratch,
                    std::span<const AffineTarget> targets, const ActivationCodes& x) {
  if (targets[0].weight.stored_bits == 4) {
    run_linear<4, false>(context, scratch, targets, x);
  } else {
    run_linear<8, false>(context, scratch, targets, x);
  }
}

}  // namespace mererun::cuda
