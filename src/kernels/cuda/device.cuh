#pragma once

#include <cstdint>

#include "kernels/numerics.h"

namespace mererun::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Every kernel calls this before it reads what its predecessor writes or writes anything. Without early
/// start it returns at once.
///
/// What earlier kernels wrote may be read before: a kernel starts when all blocks of its predecessor have
/// called let_successor_start, which they do after they waited themselves, so everything before the
/// predecessor is done.
__device__ __forceinline__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel start its blocks as soon as room is left; it still waits in wait_for_predecessor.
/// Every kernel calls it once, after its own wait_for_predecessor. A norm or coding of a few long rows
/// (ActivationCodes::starts_early) calls it before, so that a linear behind it asks for its weights sooner:
/// what no kernel writes is all that may be read early behind those.
__device__ __forceinline__ void let_successor_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// A barrier among `threads` threads of the block (a multiple of 32), one of ids 1 to 15.
__device__ __forceinline__ void barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// kBlocks neighbouring blocks that share a task and see each other's shared memory (compute capability 9.0
/// and later), or a block by itself.
template <int kBlocks>
struct Cluster {
  /// This block's number in the cluster.
  __device__ __forceinline__ static int rank() { return static_cast<int>(blockIdx.x) % kBlocks; }

  /// By all threads of all its blocks: what was written to shared memory before is seen after.
  __device__ __forceinline__ static void barrier() {
    if constexpr (kBlocks == 1) {
      __syncthreads();
    } else {
      arrive();
      wait();
    }
  }
  /// The barrier in two halves.
  __device__ __forceinline__ static void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  }
  __device__ __forceinline__ static void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  /// Stores to where `own` is in the shared memory of block `to`; every block has started.
  __device__ __forceinline__ static void store(float* own, int to, float value) {
    if constexpr (kBlocks == 1) {
      *own = value;
    } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      std::uint32_t at = static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
      asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(to));
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
#endif
    }
  }
  /// Stores to every block.
  __device__ __forceinline__ static void store_all(float* own, float value) {
#pragma unroll
    for (int to = 0; to < kBlocks; ++to) store(own, to, value);
  }
};

/// Joins 32 lanes by halving; lane 0 holds the result.
__device__ __forceinline__ float join_lanes(float a) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) a = a + __shfl_down_sync(kAllLanes, a, step);
  return a;
}

/// Sum of term(i) over i in [0, n) in the lane order of numerics::sum_of_squares, by one warp: lane l plays
/// lanes l, l + 32, ... of the order. `step(acc, i)` returns acc with element i added. All lanes get the sum.
template <typename Step>
__device__ __forceinline__ float warp_reduce(int n, Step step) {
  constexpr int kMost = numerics::kMaxReductionLanes / 32;
  const int lanes = numerics::reduction_lanes(n);
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (lanes == 32) {
    float acc = 0;
    for (int i = lane; i < n; i += 32) acc = step(acc, i);
    return __shfl_sync(kAllLanes, join_lanes(acc), 0);
  }
  float acc[kMost];
#pragma unroll
  for (int m = 0; m < kMost; ++m) {
    acc[m] = 0;
    for (int i = lane + 32 * m; i < n; i += 32 * kMost) acc[m] = step(acc[m], i);
  }
#pragma unroll
  for (int half = kMost / 2; half > 0; half /= 2) {
#pragma unroll
    for (int m = 0; m < half; ++m) acc[m] = acc[m] + acc[m + half];
  }
  return __shfl_sync(kAllLanes, join_lanes(acc[0]), 0);
}

/// Largest value over a warp, in all lanes.
__device__ __forceinline__ std::uint32_t warp_max(std::uint32_t x, int width = 32) {
  for (int step = width / 2; step > 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}

__device__ __forceinline__ int warp_add(int x, int width = 32) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// Four neighbouring floats, at once where they are a whole vector.
__device__ __forceinline__ void load_four(const float* from, float (&to)[4]) {
  if (reinterpret_cast<std::uintptr_t>(from) % sizeof(float4) == 0) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = from[j];
  }
}
__device__ __forceinline__ void store_four(float* to, const float (&from)[4]) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(float4) == 0) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) to[j] = from[j];
  }
}

/// Copies 16 bytes to shared memory in the background, past the first-level cache.
__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_async8(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_async4(void* shared, const void* global) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `kPending` of this thread's committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mererun::cuda
