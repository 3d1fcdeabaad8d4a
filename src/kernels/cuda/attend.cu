#include "kernels/cuda/attend_pair.h"
#include "kernels/cuda/attend_shared.cuh"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline namespace attend_cu {

// Queries whose weighted values a thread sums at a time.
constexpr int kFewHeld = 6, kMostHeld = 12;

/// Scores of one key with up to kHeld queries, each one accumulator over d ascending. Absent queries repeat
/// the first one: a branch for each would leave nothing to compute beside a load.
template <int kHeld>
__device__ void score_keys(const Attend& p, const Shared& s, int queries) {
  const int key = static_cast<int>(threadIdx.x) % kKeys;
  const int first = static_cast<int>(threadIdx.x) / kKeys;  // queries first, first + 4, ...
  const int dim = p.cache.head_dim;
  const std::uint32_t* codes = s.keys + key * s.pitch;
  float acc[kHeld] = {};
  const float* q[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) q[i] = s.q + (first + 4 * i < queries ? first + 4 * i : 0) * s.q_pitch;
  int d = 0;
#pragma unroll 4
  for (; d + 4 <= dim; d += 4) {
    const std::uint32_t pair = codes[d / 2];
    const std::uint32_t next = codes[d / 2 + 1];
    const float x0 = low_code(pair), x1 = high_code(pair), x2 = low_code(next), x3 = high_code(next);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float4 v = *reinterpret_cast<const float4*>(q[i] + d);
      acc[i] = nm::fma_f32(v.x, x0, acc[i]);
      acc[i] = nm::fma_f32(v.y, x1, acc[i]);
      acc[i] = nm::fma_f32(v.z, x2, acc[i]);
      acc[i] = nm::fma_f32(v.w, x3, acc[i]);
    }
  }
  for (; d < dim; ++d) {
    const float x = d % 2 == 0 ? low_code(codes[d / 2]) : high_code(codes[d / 2]);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) acc[i] = nm::fma_f32(q[i][d], x, acc[i]);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first + 4 * i < queries)
      s.weights[(first + 4 * i) * kKeys + key] = (acc[i] * s.key_scales[key]) * p.scale_log2e;
  }
}

/// Maximum, exponentials and fold factors of one query, by one warp; the sums follow in sum_weights.
__device__ void weigh_keys(const Shared& s, int query, int first) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  Query& own = s.queries[query];
  const int left = own.visible - first;
  const int count = left < kKeys ? left : kKeys;
  float* weights = s.weights + query * kKeys;
  float* scaled = s.scaled + query * kKeys;
  float most = nm::from_bits(0xff800000u);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = lane + 32 * half;
    if (j < count) most = nm::max_f32(most, weights[j]);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) most = nm::max_f32(most, __shfl_xor_sync(kAllLanes, most, step));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int j = lane + 32 * half;
    const float weight = j < count ? nm::exp2_f32(weights[j] - most) : 0.0f;
    weights[j] = weight;
    scaled[j] = j < count ? weight * s.value_scales[j] : 0.0f;
  }
  if (lane == 0) own.tile_m = most;
}

/// Sum of the exponentials, keys ascending, and how tile and segment fold; one thread a query.
template <AttendSpan kSpan>
__device__ void fold_query(const Shared& s, int query, int first) {
  Query& own = s.queries[query];
  const int left = own.visible - first;
  const int count = left < kKeys ? left : kKeys;
  const float* weights = s.weights + query * kKeys;
  float sum = 0;
  if (count == kKeys) {
#pragma unroll
    for (int j = 0; j < kKeys; j += 4) {
      const float4 w = *reinterpret_cast<const float4*>(weights + j);
      sum = (((sum + w.x) + w.y) + w.z) + w.w;
    }
  } else {
    sum = sum_seen(weights, count);
  }
  own.tile_l = sum;
  if (kSpan == AttendSpan::kTile) return;
  own.segment_first = first % kSegmentPositions == 0;
  if (own.segment_first) {
    own.segment_m = own.tile_m;
    own.segment_l = sum;
  } else {
    const nm::SoftmaxFold f = nm::fold_of(own.segment_m, own.tile_m);
    own.keep = f.keep;
    own.add = f.add;
    own.segment_m = f.m;
    own.segment_l = nm::fold_sum(own.segment_l, sum, f);
  }
  if (kSpan == AttendSpan::kSegment) return;
  const int next = first + kKeys;
  own.segment_ends = next % kSegmentPositions == 0 || next >= own.visible;
  if (!own.segment_ends) return;
  own.whole_first = first < kSegmentPositions;
  if (own.whole_first) {
    own.whole_m = own.segment_m;
    own.whole_l = own.segment_l;
  } else {
    const nm::SoftmaxFold f = nm::fold_of(own.whole_m, own.segment_m);
    own.whole_keep = f.keep;
    own.whole_add = f.add;
    own.whole_m = f.m;
    own.whole_l = nm::fold_sum(own.whole_l, own.segment_l, f);
  }
}

/// Value codes of one dim, `stride` apart, for keys [first, first + 4).
__device__ __forceinline__ void read_values(const std::int16_t* codes, int stride, int first, float (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(codes[(first + i) * stride]);
}

/// o += x[i] weighted, keys ascending.
__device__ __forceinline__ void add_weighted(const float4& w, const float (&x)[4], float& o) {
  o = nm::fma_f32(w.x, x[0], o);
  o = nm::fma_f32(w.y, x[1], o);
  o = nm::fma_f32(w.z, x[2], o);
  o = nm::fma_f32(w.w, x[3], o);
}

/// The same of keys [first, first + 4) below `seen`: one past the row's own position is no part of the sum,
/// so it is selected, not multiplied by zero.
__device__ __forceinline__ void add_weighted(const float4& w, const float (&x)[4], int first, int seen,
                                             float& o) {
  o = first + 0 < seen ? nm::fma_f32(w.x, x[0], o) : o;
  o = first + 1 < seen ? nm::fma_f32(w.y, x[1], o) : o;
  o = first + 2 < seen ? nm::fma_f32(w.z, x[2], o) : o;
  o = first + 3 < seen ? nm::fma_f32(w.w, x[3], o) : o;
}

/// The tile's weighted values of dim d for queries [from, from + kHeld) below `end`, folded or left as a
/// partial. Absent queries repeat the first one, as in score_keys.
template <AttendSpan kSpan, int kHeld>
__device__ void add_values(const Attend& p, const Shared& s, int d, int from, int end, int first, int kv_head,
                           int first_query, int chunk, bool full) {
  const int dim = p.cache.head_dim;
  float o[kHeld] = {};
  const auto* codes = reinterpret_cast<const std::int16_t*>(s.values) + d;
  const int value_stride = 2 * s.value_pitch;
  const int live = end - from < kHeld ? end - from : kHeld;
  const float* weights[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) weights[i] = s.scaled + (from + (i < live ? i : 0)) * kKeys;
  if (full) {
#pragma unroll 2
    for (int j = 0; j < kKeys; j += 4) {
      float x[4];
      read_values(codes, value_stride, j, x);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) add_weighted(*reinterpret_cast<const float4*>(weights[i] + j), x, o[i]);
    }
  } else {
    // Keys of this tile that each query sees; what lies past the last one is staged as zeros.
    int seen[kHeld], most = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      seen[i] = i < live ? s.queries[from + i].visible - first : 0;
      most = seen[i] > most ? seen[i] : most;
    }
    most = most < kKeys ? most : kKeys;
#pragma unroll 2
    for (int j = 0; j < most; j += 4) {
      float x[4];
      read_values(codes, value_stride, j, x);
#pragma unroll
      for (int i = 0; i < kHeld; ++i)
        add_weighted(*reinterpret_cast<const float4*>(weights[i] + j), x, j, seen[i], o[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i >= live) break;
    const Query& own = s.queries[from + i];
    if (own.visible <= first) continue;
    if constexpr (kSpan == AttendSpan::kTile) {
      partial_of(p, kv_head, first_query + from + i, chunk)[2 + d] = o[i];
    } else {
      float& segment = s.segment[(from + i) * dim + d];
      const float folded =
          own.segment_first ? o[i] : nm::fold_sum(segment, o[i], nm::SoftmaxFold{0, own.keep, own.add});
      segment = folded;
      if (kSpan == AttendSpan::kWhole && own.segment_ends) {
        float& whole = s.whole[(from + i) * dim + d];
        whole = own.whole_first
                    ? folded
                    : nm::fold_sum(whole, folded, nm::SoftmaxFold{0, own.whole_keep, own.whole_add});
      }
    }
  }
}

/// What is left after the last tile: partials of a segment, or the result.
template <AttendSpan kSpan>
__device__ void finish(const Attend& p, const Shared& s, int queries, int kv_head, int first_query, int chunk,
                       int first) {
  const int dim = p.cache.head_dim;
  const int tid = static_cast<int>(threadIdx.x);
  if constexpr (kSpan == AttendSpan::kWhole) {
    for (int i = tid; i < queries * dim; i += kAttendThreads) {
      const int query = i / dim;
      const int t = (first_query + query) / p.group;
      const int head = kv_head * p.group + (first_query + query) % p.group;
      const int d = i % dim;
      p.out.row(t)[head * dim + d] =
          gated(s.whole[i], s.queries[query].whole_l, p.q_gate.row(t)[(2 * head + 1) * dim + d]);
    }
  } else {
    for (int i = tid; i < queries; i += kAttendThreads) {
      if (s.queries[i].visible <= first) continue;
      float* to = partial_of(p, kv_head, first_query + i, chunk);
      to[0] = kSpan == AttendSpan::kTile ? s.queries[i].tile_m : s.queries[i].segment_m;
      to[1] = kSpan == AttendSpan::kTile ? s.queries[i].tile_l : s.queries[i].segment_l;
    }
    if constexpr (kSpan == AttendSpan::kSegment) {
      for (int i = tid; i < queries * dim; i += kAttendThreads) {
        if (s.queries[i / dim].visible <= first) continue;
        partial_of(p, kv_head, first_query + i / dim, chunk)[2 + i % dim] = s.segment[i];
      }
    }
  }
}

/// Up to 24 queries of one KV head over the tiles of one chunk.
template <AttendSpan kSpan>
__global__ void __launch_bounds__(kAttendThreads, 2) attend_kernel(const __grid_constant__ Attend p) {
  extern __shared__ __align__(16) float attend_shared[];
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.head_dim;
  const int tid = static_cast<int>(threadIdx.x);
  const int chunk = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int first_query = static_cast<int>(blockIdx.z) * p.block_queries;
  const int all = p.rows * p.group;
  const int queries = all - first_query < p.block_queries ? all - first_query : p.block_queries;
  constexpr int kPositions = kSpan == AttendSpan::kTile ? kKeys : kSegmentPositions;
  const int begin = kSpan == AttendSpan::kWhole ? 0 : chunk * kPositions;
  const int most_visible = p.positions[(first_query + queries - 1) / p.group] + 1;
  if (begin >= most_visible) return;
  const int limit =
      kSpan == AttendSpan::kWhole || begin + kPositions > most_visible ? most_visible : begin + kPositions;
  const int least_visible = p.positions[first_query / p.group] + 1;
  const std::byte* const* pages = p.cache.pages + first_query / p.group * p.row_pages;

  const Shared s = Shared::carve<kSpan>(attend_shared, dim, p.block_queries);
  copy_queries(p, kv_head, first_query, queries, queries, dim, s.q, s.q_pitch);
  if (tid < queries) s.queries[tid].visible = p.positions[(first_query + tid) / p.group] + 1;
  // Dims over threads; where they leave some over, queries are shared out as well.
  const int lines = dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
  const int teams = kAttendThreads / lines;
  const int per_team = (queries + teams - 1) / teams;
  const int team_first = tid / lines * per_team;
  const int team_end = team_first + per_team < queries ? team_first + per_team : queries;
  for (int first = begin; first < limit; first += kKeys) {
    const int count = most_visible - first < kKeys ? most_visible - first : kKeys;
    __syncthreads();
    stage_tile(p, s, pages, kv_head, first, count);
    copy_wait<0>();  // the queries, with the first tile
    __syncthreads();
    queries <= 8 ? score_keys<2>(p, s, queries) : score_keys<kAttendQueries / 4>(p, s, queries);
    __syncthreads();
    for (int query = tid / 32; query < queries; query += kAttendWarps) {
      if (s.queries[query].visible > first) weigh_keys(s, query, first);
    }
    __syncthreads();
    if (tid < queries && s.queries[tid].visible > first) fold_query<kSpan>(s, tid, first);
    __syncthreads();
    const bool full = least_visible >= first + kKeys;
    for (int d = tid % lines; d < dim; d += lines) {
      if (per_team <= kFewHeld) {
        if (team_first >= team_end) break;
        add_values<kSpan, kFewHeld>(p, s, d, team_first, team_end, first, kv_head, first_query, chunk, full);
        continue;
      }
      for (int from = team_first; from < team_end; from += kMostHeld)
        add_values<kSpan, kMostHeld>(p, s, d, from, team_end, first, kv_head, first_query, chunk, full);
    }
  }
  __syncthreads();
  finish<kSpan>(p, s, queries, kv_head, first_query, chunk, begin);
}

template <AttendSpan kSpan>
void run(const LaunchContext& context, const Attend& args, const AttendPlan& plan) {
  constexpr auto kKernel = attend_kernel<kSpan>;
  allow_all_shared<kKernel>(context);
  const dim3 grid(static_cast<unsigned>(plan.chunks), static_cast<unsigned>(args.cache.kv_heads),
                  static_cast<unsigned>(plan.query_blocks));
  const std::size_t bytes =
      context.spread(std::int64_t{plan.live_chunks} * grid.y * grid.z, plan.shared_bytes);
  launch(context, "attend", kKernel, {grid, dim3(kAttendThreads), bytes}, args);
}

void run_any(const LaunchContext& context, const Attend& args, const AttendPlan& plan) {
  switch (plan.span) {
    case AttendSpan::kTile: run<AttendSpan::kTile>(context, args, plan); break;
    case AttendSpan::kSegment: run<AttendSpan::kSegment>(context, args, plan); break;
    case AttendSpan::kWhole: run<AttendSpan::kWhole>(context, args, plan); break;
  }
}

}  // namespace attend_cu

void run_attend(const LaunchContext& context, const AttendParams& p, const AttendPlan& plan, float* partials,
                int row_pages) {
  const Attend args{matrix<const float>(p.q),
                    matrix<const float>(p.q_gate),
                    p.positions.row<const int>(0),
                    p.cache,
                    p.heads,
                    p.heads / p.cache.kv_heads,
                    p.q.rows,
                    plan.block_queries,
                    plan.chunks,
                    p.scale_log2e,
                    matrix<float>(p.out),
                    partials,
                    row_pages};
  if (plan.is_paired) {
    run_attend_pair(context, args, plan);
  } else {
    run_any(context, args, plan);
  }
  if (plan.span != AttendSpan::kWhole) run_attend_fold(context, args, plan.span);
}

}  // namespace mererun::cuda
