#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

// One row of the delta rule on one value column, whose state four lanes hold: lane `part` of them has rows
// 16 i + 4 part .. + 3.

namespace mererun::cuda {

/// The 16 accumulators of a dot product, four a lane: lane p of a column's four holds 4p .. 4p + 3.
__device__ __forceinline__ float join_column(const float (&a)[4]) {
  float sum = (a[0] + a[1]) + (a[2] + a[3]);
  sum = sum + __shfl_xor_sync(kAllLanes, sum, 1);
  return sum + __shfl_xor_sync(kAllLanes, sum, 2);
}

struct DeltaRow {
  float u, o;
};

/// Steps the state by one row. `k`, `q`: from element 4 * part on, whole vectors.
template <int kMost>
__device__ __forceinline__ DeltaRow step_row(float (&s)[kMost][4], int runs, const float* k, const float* q,
                                             float v, float alpha, float beta) {
  float acc[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < runs; ++i) {
    const float4 key = *reinterpret_cast<const float4*>(k + 16 * i);
    s[i][0] = alpha * s[i][0];
    s[i][1] = alpha * s[i][1];
    s[i][2] = alpha * s[i][2];
    s[i][3] = alpha * s[i][3];
    acc[0] = numerics::fma_f32(s[i][0], key.x, acc[0]);
    acc[1] = numerics::fma_f32(s[i][1], key.y, acc[1]);
    acc[2] = numerics::fma_f32(s[i][2], key.z, acc[2]);
    acc[3] = numerics::fma_f32(s[i][3], key.w, acc[3]);
  }
  const float u = beta * (v - join_column(acc));
  float sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < runs; ++i) {
    const float4 key = *reinterpret_cast<const float4*>(k + 16 * i);
    const float4 query = *reinterpret_cast<const float4*>(q + 16 * i);
    s[i][0] = numerics::fma_f32(u, key.x, s[i][0]);
    s[i][1] = numerics::fma_f32(u, key.y, s[i][1]);
    s[i][2] = numerics::fma_f32(u, key.z, s[i][2]);
    s[i][3] = numerics::fma_f32(u, key.w, s[i][3]);
    sum[0] = numerics::fma_f32(s[i][0], query.x, sum[0]);
    sum[1] = numerics::fma_f32(s[i][1], query.y, sum[1]);
    sum[2] = numerics::fma_f32(s[i][2], query.z, sum[2]);
    sum[3] = numerics::fma_f32(s[i][3], query.w, sum[3]);
  }
  return {u, join_column(sum)};
}

}  // namespace mererun::cuda
