#pragma once

#include "kernels/cuda/code_span.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/norm.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

template <GateActivation kActivation>
__device__ __forceinline__ float activated(float z) {
  return kActivation == GateActivation::kSilu ? numerics::silu_f32(z) : numerics::sigmoid_f32(z);
}

/// Gated RMS norm of a head of 32 * kHeld by one warp; a lane has elements 32 apart of x, z and weight.
/// Replaces x.
template <GateActivation kActivation, int kHeld>
__device__ __forceinline__ void norm_head(float (&x)[kHeld], const float (&z)[kHeld],
                                          const float (&weight)[kHeld], float eps) {
  float acc = 0;
#pragma unroll
  for (int m = 0; m < kHeld; ++m) acc = numerics::fma_f32(x[m], x[m], acc);
  const float sum = __shfl_sync(kAllLanes, join_lanes(acc), 0);
  const float r = numerics::rsqrt_f32(sum / static_cast<float>(32 * kHeld) + eps);
#pragma unroll
  for (int m = 0; m < kHeld; ++m) x[m] = ((x[m] * r) * weight[m]) * activated<kActivation>(z[m]);
}

/// Codes a head of kCodeSpan elements of row t, from `first` on, through the warp's own shared memory.
__device__ __forceinline__ void code_head(const ActivationCodes& to, int t, int first,
                                          const float (&x)[kCodeSpan / 32], float* own) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int m = 0; m < kCodeSpan / 32; ++m) own[lane + 32 * m] = x[m];
  __syncwarp();
  float values[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) values[j] = own[4 * lane + j];
  code_span(to, t, first, values, true);
}

}  // namespace mererun::cuda
