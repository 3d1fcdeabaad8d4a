#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

// The choice of experts, their weights and the sum of their results.

namespace mererun::cuda {

/// A number that orders as the logits do, NaN below every other; never 0.
__device__ __forceinline__ std::uint32_t rank_key(float x) {
  if (x != x) return 1;
  const std::uint32_t bits = x == 0.0f ? 0u : numerics::bits_of(x);  // -0 equals +0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Chooses the `chosen` largest logits of a row by one warp (value descending, id ascending on ties): ids in
/// ascending order. `keys`: scratch in shared memory, one an expert.
__device__ __forceinline__ void choose_experts(const float* row, int experts, int chosen, std::uint32_t* keys,
                                               int* ids) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  for (int e = lane; e < experts; e += 32) keys[e] = rank_key(row[e]);
#pragma unroll 1
  for (int i = 0; i < chosen; ++i) {
    std::uint32_t best = 0;
    unsigned at = ~0u;
    for (int e = lane; e < experts; e += 32) {
      if (keys[e] > best) {
        best = keys[e];
        at = static_cast<unsigned>(e);
      }
    }
    const std::uint32_t most = __reduce_max_sync(kAllLanes, best);
    const unsigned id = __reduce_min_sync(kAllLanes, best == most ? at : ~0u);
    if (at == id && best == most) keys[id] = 0;
  }
  int before = 0;
#pragma unroll 1
  for (int first = 0; first < experts; first += 32) {
    const bool taken = first + lane < experts && keys[first + lane] == 0;
    const unsigned mask = __ballot_sync(kAllLanes, taken);
    if (taken) ids[before + __popc(mask & ((1u << lane) - 1))] = first + lane;
    before += __popc(mask);
  }
  __syncwarp();
}

/// Weights of the chosen experts of a row, by one warp: softmax over them (normalise) or over all, sums as
/// the contract orders them. `id_of(i)` is the i-th id.
template <typename IdOf>
__device__ __forceinline__ void weigh_experts(const float* row, int experts, int chosen, bool normalise,
                                              IdOf id_of, float* weights) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int terms = normalise ? chosen : experts;
  float most = numerics::from_bits(0xff800000u);
#pragma unroll 1
  for (int i = lane; i < terms; i += 32) most = numerics::max_f32(most, row[normalise ? id_of(i) : i]);
  for (int step = 16; step > 0; step /= 2)
    most = numerics::max_f32(most, __shfl_xor_sync(kAllLanes, most, step));
  float sum = 0;
  if (normalise) {
#pragma unroll 1
    for (int first = 0; first < chosen; first += 32) {
      const float term = first + lane < chosen ? numerics::exp_f32(row[id_of(first + lane)] - most) : 0.0f;
      for (int i = 0; i < 32 && first + i < chosen; ++i) sum = sum + __shfl_sync(kAllLanes, term, i);
    }
  } else {
    sum = warp_reduce(experts, [&](float acc, int i) { return acc + numerics::exp_f32(row[i] - most); });
  }
#pragma unroll 1
  for (int i = lane; i < chosen; i += 32) weights[i] = numerics::exp_f32(row[id_of(i)] - most) / sum;
}

/// Sum of the chosen experts' results, in ascending id.
template <typename Weight, typename Value>
__device__ __forceinline__ float mix_experts(int chosen, Weight weight, Value value) {
  float acc = 0;
  for (int i = 0; i < chosen; ++i) acc = numerics::fma_f32(weight(i), value(i), acc);
  return acc;
}

}  // namespace mererun::cuda
