#include "kernels/cuda/linear_work.cuh"

namespace mererun::cuda {

void run_affine_gated(const LaunchContext& context, AffineScratch& scratch, const AffineView& gate,
                      const AffineView& up, const ActivationCodes& x, const TensorView& out) {
  GatedWork work{};
  work.gate = gate.records;
  work.up = up.records;
  work.tile_bytes = gate.tile_bytes();
  work.out = matrix<float>(out);
  work.rows = gate.out;
  work.tiles = gate.tiles();
  run_narrow<4>(context, scratch, gate, x, [&]<int>() { return work; });
}

}  // namespace mererun::cuda
