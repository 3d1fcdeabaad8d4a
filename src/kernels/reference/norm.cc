#include "kernels/norm.h"

#include "kernels/numerics.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

/// 1 / sqrt(S / n + eps).
float inverse_rms(const float* x, int n, float eps) {
  return nm::rsqrt_f32(nm::sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

void rms_norm(const RmsNormParams& p) {
  const float* w = p.weight.row<float>(0);
  for (int t = 0; t < p.x.rows; ++t) {
    const float* x = p.x.row<float>(t);
    float* out = p.out.row<float>(t);
    const float r = inverse_rms(x, p.x.cols, p.eps);
    for (int i = 0; i < p.x.cols; ++i) out[i] = (x[i] * r) * w[i];
  }
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
