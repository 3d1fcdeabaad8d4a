#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/expert_list.h"

namespace mererun::cuda {

inline namespace expert_list_cu {

constexpr int kThreads = 1024;

/// Exclusive prefix sums of counts[0..n) in place, by warp 0; returns the total in all of its lanes.
__device__ int prefix_sums(int* counts, int n) {
  const int lane = static_cast<int>(threadIdx.x);
  const int per = (n + 31) / 32;
  const int first = lane * per < n ? lane * per : n;
  const int end = first + per < n ? first + per : n;
  int sum = 0;
  for (int i = first; i < end; ++i) sum += counts[i];
  int before = sum;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, before, step);
    if (lane >= step) before += other;
  }
  const int total = __shfl_sync(kAllLanes, before, 31);
  before -= sum;
  for (int i = first; i < end; ++i) {
    const int count = counts[i];
    counts[i] = before;
    before += count;
  }
  return total;
}

/// Whether this lane is the first of those in `mask`.
__device__ __forceinline__ bool leads(unsigned mask) {
  return static_cast<int>(threadIdx.x & 31) == __ffs(static_cast<int>(mask)) - 1;
}

/// The entries of every expert, `width` of its places each; where its first place and entry lie: [E] each.
__device__ __forceinline__ void write_entries(const ExpertList& list, const int* places, const int* entries,
                                              int n) {
  for (int e = static_cast<int>(threadIdx.x); e < list.experts; e += kThreads) {
    const int end = e + 1 < list.experts ? places[e + 1] : n;
    int entry = entries[e];
    for (int place = places[e]; place < end; place += list.width, ++entry) {
      list.entry_expert[entry] = e;
      list.entry_first[entry] = place;
      list.entry_count[entry] = end - place < list.width ? end - place : list.width;
    }
  }
}

/// One block. Warps share the assignments in runs and count their experts; what the warps before have
/// counted, and the lanes before in each 32, say where an assignment goes.
__global__ void __launch_bounds__(kThreads)
    expert_list_kernel(Matrix<const int> ids, ExpertList list, int warps) {
  extern __shared__ int
      counts[];  // [E] assignments, then places; [E] entries, then places of entries; [warps][E]
  wait_for_predecessor();
  let_successor_start();
  int* entries = counts + list.experts;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x & 31);
  int* own = entries + list.experts + warp * list.experts;
  const int n = list.assignments();
  const int run = (n + 32 * warps - 1) / (32 * warps) * 32;
  /// Calls use(assignment, expert or -1, lanes with this expert) for each 32 of this warp's run.
  const auto each = [&](auto&& use) {
    if (warp >= warps) return;
    const int end = (warp + 1) * run < n ? (warp + 1) * run : n;
    for (int first = warp * run; first < end; first += 32) {
      const int i = first + lane;
      const int e = i < end ? ids.row(i / list.chosen)[i % list.chosen] : -1;
      use(i, e, __match_any_sync(kAllLanes, e));
      __syncwarp();
    }
  };
  if (warp < warps) {
    for (int e = lane; e < list.experts; e += 32) own[e] = 0;
    __syncwarp();
  }
  each([&](int, int e, unsigned mask) {
    if (e >= 0 && leads(mask)) own[e] += __popc(mask);
  });
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < list.experts; e += kThreads) {
    int count = 0;
    for (int w = 0; w < warps; ++w) {
      int& at = entries[(1 + w) * list.experts + e];
      const int here = at;
      at = count;
      count += here;
    }
    counts[e] = count;
    entries[e] = (count + list.width - 1) / list.width;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    prefix_sums(counts, list.experts);
    const int total = prefix_sums(entries, list.experts);
    if (threadIdx.x == 0) *list.entries = total;
  }
  __syncthreads();
  each([&](int i, int e, unsigned mask) {
    if (e >= 0) {
      const int at = counts[e] + own[e] + __popc(mask & ((1u << lane) - 1));
      list.source[at] = i;
      list.place[i] = at;
      list.expert[at] = e;
    }
    __syncwarp();
    if (e >= 0 && leads(mask)) own[e] += __popc(mask);
  });
  write_entries(list, counts, entries, n);
}

}  // namespace expert_list_cu

ExpertList lay_expert_list(int* memory, int rows, int chosen, int experts, int width) {
  ExpertList list;
  list.rows = rows;
  list.chosen = chosen;
  list.experts = experts;
  list.width = width;
  const int n = list.assignments();
  const int most = most_entries(n, experts, width);
  list.source = memory;
  list.place = list.source + n;
  list.expert = list.place + n;
  list.entry_expert = list.expert + n;
  list.entry_first = list.entry_expert + most;
  list.entry_count = list.entry_first + most;
  list.entries = list.entry_count + most;
  return list;
}

void run_expert_list(const LaunchContext& context, Matrix<const int> ids, const ExpertList& list) {
  const int warps = std::min<int>(kThreads / 32, static_cast<int>(blocks_for(list.assignments(), 32)));
  const std::size_t bytes =
      sizeof(int) * static_cast<std::size_t>(list.experts) * static_cast<std::size_t>(2 + warps);
  allow_shared(expert_list_kernel, bytes);
  launch(context, "expert_list", expert_list_kernel, {dim3(1), dim3(kThreads), bytes}, ids, list, warps);
}

}  // namespace mererun::cuda
