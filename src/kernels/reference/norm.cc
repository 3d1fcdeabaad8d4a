#include "kernels/norm.h"

#include "kernels/numerics.h"
#include "kernels/reference/head_norm.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

void rms_norm(const RmsNormParams& p) {
  for (int t = 0; t < p.x.rows; ++t)
    norm_run(p.x.row<float>(t), p.weight.row<float>(0), p.x.cols, p.eps, p.out.row<float>(t));
}

void gated_rms_norm(const GatedRmsNormParams& p) {
  const int dim = p.weight.cols;
  const float* w = p.weight.row<float>(0);
  for (int t = 0; t < p.x.rows; ++t) {
    for (int h = 0; h < p.heads; ++h) {
      const float* x = p.x.row<float>(t) + h * dim;
      const float* z = p.z.row<float>(t) + h * dim;
      float* out = p.out.row<float>(t) + h * dim;
      const float r = inverse_rms(x, dim, p.eps);
      if (p.activation == GateActivation::kSilu) {
        for (int i = 0; i < dim; ++i) out[i] = ((x[i] * r) * w[i]) * nm::silu_f32(z[i]);
      } else {
        for (int i = 0; i < dim; ++i) out[i] = ((x[i] * r) * w[i]) * nm::sigmoid_f32(z[i]);
      }
    }
  }
}

}  // namespace

void bind_norm(Loops& loops) {
  loops.rms_norm = rms_norm;
  loops.gated_rms_norm = gated_rms_norm;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
