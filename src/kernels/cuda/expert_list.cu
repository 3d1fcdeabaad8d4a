#include "kernels/cuda/device.cuh"
#include "kernels/cuda/expert_list.h"

namespace mererun::cuda {

namespace {

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

/// One block; thread e collects the assignments of expert e in row order. `staged`: the ids fit in shared
/// memory.
__global__ void __launch_bounds__(kThreads)
    expert_list_kernel(Matrix<const int> ids, ExpertList list, bool staged) {
  extern __shared__ int counts[];  // [E] assignments, then places; [E] entries, then places of entries; ids
  wait_for_predecessor();
  let_successor_start();
  int* entries = counts + list.experts;
  const int n = list.assignments();
  if (staged) {
    int* copies = entries + list.experts;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      copies[i] = ids.row(i / list.chosen)[i % list.chosen];
    ids = {copies, list.chosen};
    __syncthreads();
  }
  for (int e = static_cast<int>(threadIdx.x); e < list.experts; e += kThreads) {
    int count = 0;
    for (int t = 0; t < list.rows; ++t) {
#pragma unroll 8
      for (int i = 0; i < list.chosen; ++i) count += ids.row(t)[i] == e ? 1 : 0;
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
  for (int e = static_cast<int>(threadIdx.x); e < list.experts; e += kThreads) {
    const int first = counts[e];
    const int end = e + 1 < list.experts ? counts[e + 1] : n;
    if (first == end) continue;
    int at = first;
    for (int t = 0; t < list.rows && at < end; ++t) {
      for (int i = 0; i < list.chosen; ++i) {
        if (ids.row(t)[i] != e) continue;
        list.source[at] = t * list.chosen + i;
        list.place[t * list.chosen + i] = at;
        list.expert[at] = e;
        ++at;
      }
    }
    int entry = entries[e];
    for (int place = first; place < end; place += list.width, ++entry) {
      list.entry_expert[entry] = e;
      list.entry_first[entry] = place;
      list.entry_count[entry] = end - place < list.width ? end - place : list.width;
    }
  }
}

}  // namespace

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
  std::size_t bytes = 2 * sizeof(int) * static_cast<std::size_t>(list.experts);
  const std::size_t id_bytes = sizeof(int) * static_cast<std::size_t>(list.assignments());
  const bool staged = bytes + id_bytes <= 47 * 1024;
  if (staged) bytes += id_bytes;
  allow_shared(expert_list_kernel, bytes);
  launch(context, "expert_list", expert_list_kernel, {dim3(1), dim3(kThreads), bytes}, ids, list, staged);
}

}  // namespace mererun::cuda
