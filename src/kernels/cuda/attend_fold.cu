#include "kernels/cuda/attend_pair.h"
#include "kernels/cuda/attend_shared.cuh"
#include "kernels/cuda/device.cuh"

namespace mererun::cuda {

inline namespace attend_fold_cu {

/// Partials whose factors a block holds at a time: whole segments.
constexpr int kBatch = kAttendThreads;

/// What threads need to fold a batch: sums of the partials, and keep and add of each fold. The maxima of all
/// folds come from the partials' alone, so every factor is computed by a thread of its own.
struct Batch {
  float m[kBatch], l[kBatch], segment_m[kBatch];
  float2 tile[kBatch];     // of a partial into its segment
  float2 segment[kBatch];  // of a segment into the whole
};

/// Loads `count` partials' maxima and sums and computes the factors. `whole_m` is the maximum of the batches
/// before, used unless `first`; it becomes that of this one too.
template <int kPerSegment>
__device__ void load_batch(Batch& b, const float* from, int pitch, int count, bool first, float& whole_m) {
  const int i = static_cast<int>(threadIdx.x);
  const int segments = (count + kPerSegment - 1) / kPerSegment;
  __syncthreads();
  if (i < count) {
    b.m[i] = from[static_cast<std::int64_t>(i) * pitch];
    b.l[i] = from[static_cast<std::int64_t>(i) * pitch + 1];
  }
  __syncthreads();
  if (i < count) {
    const int start = i / kPerSegment * kPerSegment;
    float left = b.m[start];
    for (int k = start + 1; k < i; ++k) left = nm::max_f32(left, b.m[k]);
    if (i > start) b.tile[i] = factors_of(left, b.m[i]);
    if (i + 1 == count || (i + 1) % kPerSegment == 0)
      b.segment_m[i / kPerSegment] = i > start ? nm::max_f32(left, b.m[i]) : left;
  }
  __syncthreads();
  if (i < segments) {
    float left = first ? b.segment_m[0] : whole_m;
    for (int k = first ? 1 : 0; k < i; ++k) left = nm::max_f32(left, b.segment_m[k]);
    if (!first || i > 0) b.segment[i] = factors_of(left, b.segment_m[i]);
  }
  if (first) whole_m = b.segment_m[0];
  for (int k = 0; k < segments; ++k) whole_m = nm::max_f32(whole_m, b.segment_m[k]);
  __syncthreads();
}

/// Folds the partials of one (row, head), left to right, and applies the gate; threads over dims.
template <int kPerSegment>
__global__ void __launch_bounds__(kAttendThreads) attend_fold_kernel(const __grid_constant__ Attend p) {
  __shared__ Batch batch;
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.head_dim;
  const int pitch = dim + 2;
  const int head = static_cast<int>(blockIdx.x);
  const int t = static_cast<int>(blockIdx.y);
  const int visible = p.positions[t] + 1;
  const float* from = p.partials + (static_cast<std::int64_t>(t) * p.heads + head) * p.chunks * pitch;
  constexpr int kPositions = kSegmentPositions / kPerSegment;
  constexpr int kAtOnce = 16;  // partials whose loads are under way together
  const int count = (visible + kPositions - 1) / kPositions;
  for (int line = 0; line < dim; line += kAttendThreads) {
    const int d = line + static_cast<int>(threadIdx.x);
    const bool live = d < dim;
    float whole_m = 0, whole_o = 0, whole_l = 0, o = 0, l = 0;
    for (int begin = 0; begin < count; begin += kBatch) {
      const int here = count - begin < kBatch ? count - begin : kBatch;
      const float* parts = from + static_cast<std::int64_t>(begin) * pitch;
      load_batch<kPerSegment>(batch, parts, pitch, here, begin == 0, whole_m);
      for (int at = 0; at < here; at += kAtOnce) {
        float next[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i)
          next[i] = live && at + i < here ? parts[static_cast<std::int64_t>(at + i) * pitch + 2 + d] : 0.0f;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int index = at + i;
          if (index >= here) break;
          const bool starts = index % kPerSegment == 0;
          o = starts ? next[i] : fold_by(o, next[i], batch.tile[index]);
          l = starts ? batch.l[index] : fold_by(l, batch.l[index], batch.tile[index]);
          if ((index + 1) % kPerSegment != 0 && index + 1 < here) continue;
          const bool is_first = begin + index < kPerSegment;
          const float2 f = batch.segment[index / kPerSegment];
          whole_o = is_first ? o : fold_by(whole_o, o, f);
          whole_l = is_first ? l : fold_by(whole_l, l, f);
        }
      }
    }
    if (live)
      p.out.row(t)[head * dim + d] = gated(whole_o, whole_l, p.q_gate.row(t)[(2 * head + 1) * dim + d]);
  }
}

}  // namespace attend_fold_cu

void run_attend_fold(const LaunchContext& context, const Attend& args, AttendSpan span) {
  const auto kernel =
      span == AttendSpan::kTile ? attend_fold_kernel<nm::kSegmentTiles> : attend_fold_kernel<1>;
  launch(context, "attend", kernel,
         {dim3(static_cast<unsigned>(args.heads), static_cast<unsigned>(args.rows)), dim3(kAttendThreads)},
         args);
}

}  // namespace mererun::cuda
