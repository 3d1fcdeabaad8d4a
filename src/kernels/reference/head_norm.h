#pragma once

#include "kernels/attention.h"
#include "kernels/numerics.h"

// Norms that several loops take of one run of values. Every build of the loops has its own copy.

namespace mererun::reference::MERERUN_REFERENCE_BUILD {

/// 1 / sqrt(S / n + eps), S the sum of squares of n values.
inline float inverse_rms(const float* x, int n, float eps) {
  return numerics::rsqrt_f32(numerics::sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

/// RMS norm of n values, as in RmsNormParams. `out` may be `x`.
inline void norm_run(const float* x, const float* weight, int n, float eps, float* out) {
  const float r = inverse_rms(x, n, eps);
  for (int i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

/// RMS norm of one head, then the rotation of its first dims. `out` must not alias `x`.
inline void norm_and_rotate(const float* x, const float* weight, int dim, float eps, const RopeView& rope,
                            int position, float* out) {
  norm_run(x, weight, dim, eps, out);
  const int half = rope.rotary_dims / 2;
  const float* cosine = rope.cos.row<float>(position);
  const float* sine = rope.sin.row<float>(position);
  for (int i = 0; i < half; ++i) {
    const float first = out[i];
    const float second = out[i + half];
    out[i] = numerics::rotate_first(first, second, cosine[i], sine[i]);
    out[i + half] = numerics::rotate_second(first, second, cosine[i], sine[i]);
  }
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
