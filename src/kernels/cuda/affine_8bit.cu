#include "kernels/cuda/affine_variants.h"
#include "kernels/cuda/linear_work.cuh"

namespace mererun::cuda {

void run_affine_8bit(const LaunchContext& context, AffineScratch& scratch,
                     std::span<const AffineTarget> targets, const ActivationCodes& x) {
  run_linear<8, true>(context, scratch, targets, x);
}

}  // namespace mererun::cuda
