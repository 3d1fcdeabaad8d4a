#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/numerics.h"

// One head vector by one warp: norm and rotation, and the rounded form that the cache holds.

namespace mererun::cuda {

struct Rotation {
  Matrix<const float> cosine, sine;
  int half = 0;  // of the rotated dims
};

inline Rotation rotation_of(const RopeView& rope) {
  return {matrix<const float>(rope.cos), matrix<const float>(rope.sin), rope.rotary_dims / 2};
}

/// RMS norm of `dim` values, then the rotation of the first ones, into the warp's own shared memory `out`,
/// which is not `x`.
__device__ __forceinline__ void norm_and_rotate(const float* x, const float* weight, int dim, float eps,
                                                const Rotation& rotation, int position, float* out) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const float sum = warp_reduce(dim, [&](float acc, int i) { return numerics::fma_f32(x[i], x[i], acc); });
  const float r = numerics::rsqrt_f32(sum / static_cast<float>(dim) + eps);
  for (int i = lane; i < dim; i += 32) out[i] = (x[i] * r) * weight[i];
  __syncwarp();
  const float* cosine = rotation.cosine.row(position);
  const float* sine = rotation.sine.row(position);
  for (int i = lane; i < rotation.half; i += 32) {
    const float first = out[i];
    const float second = out[i + rotation.half];
    out[i] = numerics::rotate_first(first, second, cosine[i], sine[i]);
    out[i + rotation.half] = numerics::rotate_second(first, second, cosine[i], sine[i]);
  }
  __syncwarp();
}

/// Rounds one head vector into its slot of a page: codes and scale at the given byte offsets.
__device__ __forceinline__ void append_codes(std::byte* page, std::size_t codes, std::size_t scales, int slot,
                                             const float* x, int dim) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  std::uint32_t most = 0;
  for (int i = lane; i < dim; i += 32) {
    const std::uint32_t u = numerics::bits_of(x[i]) & 0x7fffffffu;
    most = u > most ? u : most;
  }
  const numerics::CodeScale scale = numerics::code_scale(warp_max(most));
  auto* to = reinterpret_cast<std::int16_t*>(page + codes) + static_cast<std::int64_t>(slot) * dim;
  for (int i = lane; i < dim; i += 32) to[i] = numerics::code_of(x[i], scale);
  if (lane == 0) reinterpret_cast<float*>(page + scales)[slot] = scale.scale;
}

}  // namespace mererun::cuda
