#pragma once

#include "kernels/cuda/expert_math.cuh"
#include "kernels/cuda/few_experts.cuh"

// The choice of experts for a few rows, by a whole block at once.

namespace mererun::cuda {

/// Shared memory for it: keys that a warp compares; the best of every 32 experts of a row, value first; marks
/// of the chosen.
struct FewChoice {
  std::uint64_t* best;
  std::uint32_t* keys;
  unsigned* marks;
  int runs;  // of 32 experts

  __device__ FewChoice(std::uint8_t* memory, int experts, int rows, int chosen)
      : best(reinterpret_cast<std::uint64_t*>(memory)), runs(runs_of(experts)) {
    keys = reinterpret_cast<std::uint32_t*>(best + candidates(experts, rows, chosen));
    marks = reinterpret_cast<unsigned*>(keys + kFewThreads);
  }
  __host__ __device__ static int runs_of(int experts) { return (experts + 31) / 32; }
  /// Even, so that keys can be read four at a time.
  __host__ __device__ static int candidates(int experts, int rows, int chosen) {
    return (rows * runs_of(experts) * chosen + 1) & ~1;
  }
  static std::int64_t bytes(int experts, int rows, int chosen) {
    return 8 * static_cast<std::int64_t>(candidates(experts, rows, chosen)) +
           4 * (kFewThreads + static_cast<std::int64_t>(rows) * runs_of(experts));
  }

  /// Each warp ranks 32 experts of a row among themselves and keeps the first `chosen`.
  __device__ __forceinline__ void rank_runs(const FewExpertsLaunch& p) const {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll 1
    for (int task = warp; task < p.rows * runs; task += kFewWarps) {
      const int t = task / runs, e = (task - t * runs) * 32 + lane;
      const std::uint32_t key = e < p.route.experts ? rank_key(p.route.logits.row(t)[e]) : 0;
      keys[32 * warp + lane] = key;
      __syncwarp();
      int before = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint4 others = reinterpret_cast<const uint4*>(keys + 32 * warp)[j];
        const auto add = [&](std::uint32_t other, int at) {
          before += other > key || (other == key && at < lane) ? 1 : 0;
        };
        add(others.x, 4 * j);
        add(others.y, 4 * j + 1);
        add(others.z, 4 * j + 2);
        add(others.w, 4 * j + 3);
      }
      if (before < p.chosen) {
        best[task * p.chosen + before] =
            static_cast<std::uint64_t>(key) << 32 | ~static_cast<std::uint32_t>(e);
      }
      __syncwarp();
    }
  }
  /// Marks those that rank among the first of their row.
  __device__ __forceinline__ void mark_chosen(const FewExpertsLaunch& p) const {
    const int some = runs * p.chosen;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < p.rows * some; i += kFewThreads) {
      const int t = i / some;
      const std::uint64_t own = best[i];
      int before = 0;
#pragma unroll 4
      for (int j = 0; j < some; ++j) before += best[t * some + j] > own ? 1 : 0;
      const unsigned e = ~static_cast<std::uint32_t>(own);
      if (before < p.chosen) atomicOr(marks + t * runs + e / 32, 1u << (e % 32));
    }
  }
  /// Calls use(t, i, id) for the i-th chosen of row t, ascending.
  template <typename Use>
  __device__ __forceinline__ void each(const FewExpertsLaunch& p, Use use) const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= p.rows * runs) return;
    const int t = i / runs;
    int before = 0;
    for (int w = t * runs; w < i; ++w) before += __popc(marks[w]);
    for (unsigned mask = marks[i]; mask != 0; mask &= mask - 1)
      use(t, before++, (i - t * runs) * 32 + __ffs(static_cast<int>(mask)) - 1);
  }

  template <typename Use>
  __device__ __forceinline__ void run(const FewExpertsLaunch& p, Use use) const {
    if (static_cast<int>(threadIdx.x) < p.rows * runs) marks[threadIdx.x] = 0;
    rank_runs(p);
    __syncthreads();
    mark_chosen(p);
    __syncthreads();
    each(p, use);
  }
};

}  // namespace mererun::cuda
