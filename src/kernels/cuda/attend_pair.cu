#include "kernels/cuda/attend_pair.h"

#include "kernels/cuda/attend_shared.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

// Attention for heads of 256 dims. A warp takes two tiles of keys and up to eight queries of one KV head all
// by itself: keys stream through a ring in shared memory, 32 dims of 128 keys at a time, and every lane holds
// the sums of four keys with all queries; values stream through registers, and every lane holds eight dims
// of all queries. Each code is converted once for all queries. Only the left fold of the tiles crosses warps.

namespace mererun::cuda {

inline namespace attend_pair_cu {

constexpr int kDim = kPairHeadDim;
constexpr int kChunkDims = 32;
constexpr int kDimChunks = kDim / kChunkDims;
constexpr int kPairKeys = 2 * kKeys;
constexpr int kLaneKeys = kPairKeys / 32;
constexpr int kLaneDims = kDim / 32;

/// What a block keeps in shared memory; the ring of each warp comes last.
template <int kQueries>
struct PairShared {
  float q[kQueries][kDim];
  float m[kQueries][nm::kSegmentTiles], l[kQueries][nm::kSegmentTiles];  // of each tile
  float2 factors[kQueries][nm::kSegmentTiles];                           // keep and add of each tile's fold
  float segment_m[kQueries], segment_l[kQueries];
  float whole_m[kQueries], whole_l[kQueries], whole_keep[kQueries], whole_add[kQueries];
  int visible[kQueries];  // keys it sees; 0: no query
  alignas(16) float rings[4];
};

/// The two tiles of one warp.
struct TilePair {
  const std::byte* keys[2];    // codes, kDim of int16 a key
  const std::byte* values[2];  // the same
  const float* key_scales[2];
  const float* value_scales[2];
  int first[2];  // position of the first key
  int count;     // tiles that some query sees

  __device__ TilePair(const Attend& p, int kv_head, int tile, int limit) : count(0) {
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      first[t] = (tile + t * kAttendWarps) * kKeys;
      if (first[t] < limit) count = t + 1;
      const int at = first[t] < limit ? first[t] : 0;
      const std::byte* page = p.cache.pages[at / kKvPagePositions];  // a tile lies inside one page
      const std::int64_t slot = static_cast<std::int64_t>(kv_head) * kKvPagePositions + at % kKvPagePositions;
      keys[t] = page + p.cache.key_codes + slot * (2 * kDim);
      values[t] = page + p.cache.value_codes + slot * (2 * kDim);
      key_scales[t] = reinterpret_cast<const float*>(page + p.cache.key_scales) + slot;
      value_scales[t] = reinterpret_cast<const float*>(page + p.cache.value_scales) + slot;
    }
  }
};

/// Starts the copy of 32 dims of all keys of the pair; lanes 4i to 4i + 3 take a key's 64 bytes.
__device__ __forceinline__ void copy_keys(const TilePair& pair, int chunk, float* to) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int i = 0; i < kPairKeys / 8; ++i) {
    const int tile = i / 8;
    if (tile >= pair.count) break;
    const int key = 8 * (i % 8) + lane / 4;
    copy_async16(to + (tile * kKeys + key) * kPairKeyWords + lane % 4 * 4,
                 pair.keys[tile] + key * (2 * kDim) + chunk * (2 * kChunkDims) + lane % 4 * 16);
  }
}

/// Adds 32 dims, ascending, to the dot products of the lane's keys with all queries.
template <int kQueries>
__device__ __forceinline__ void score_chunk(const float* keys, const float* q,
                                            float (&acc)[kQueries][kLaneKeys]) {
#pragma unroll 2
  for (int d = 0; d < kChunkDims; d += 8) {
    uint4 codes[kLaneKeys];
#pragma unroll
    for (int k = 0; k < kLaneKeys; ++k)
      codes[k] = *reinterpret_cast<const uint4*>(keys + 32 * k * kPairKeyWords + d / 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x[kLaneKeys][4];
#pragma unroll
      for (int k = 0; k < kLaneKeys; ++k) {
        const std::uint32_t low = half == 0 ? codes[k].x : codes[k].z;
        const std::uint32_t high = half == 0 ? codes[k].y : codes[k].w;
        x[k][0] = low_code(low), x[k][1] = high_code(low);
        x[k][2] = low_code(high), x[k][3] = high_code(high);
      }
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        const float4 v = *reinterpret_cast<const float4*>(q + i * kDim + d + 4 * half);
#pragma unroll
        for (int k = 0; k < kLaneKeys; ++k) {
          acc[i][k] = nm::fma_f32(v.x, x[k][0], acc[i][k]);
          acc[i][k] = nm::fma_f32(v.y, x[k][1], acc[i][k]);
          acc[i][k] = nm::fma_f32(v.z, x[k][2], acc[i][k]);
          acc[i][k] = nm::fma_f32(v.w, x[k][3], acc[i][k]);
        }
      }
    }
  }
}

/// Dot products of the lane's keys (lane, lane + 32 of each tile) with all queries.
template <int kQueries>
__device__ __forceinline__ void score_pair(const TilePair& pair, const PairShared<kQueries>& s, float* ring,
                                           float (&acc)[kQueries][kLaneKeys]) {
  constexpr int kStage = kPairKeys * kPairKeyWords;
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
#pragma unroll
    for (int k = 0; k < kLaneKeys; ++k) acc[i][k] = 0;
  }
  copy_keys(pair, 0, ring);
  copy_commit();
#pragma unroll 1
  for (int chunk = 0; chunk < kDimChunks; ++chunk) {
    if (chunk + 1 < kDimChunks) copy_keys(pair, chunk + 1, ring + (chunk + 1) % 2 * kStage);
    copy_commit();
    copy_wait<1>();
    __syncwarp();
    score_chunk<kQueries>(ring + chunk % 2 * kStage + lane * kPairKeyWords, s.q[0] + chunk * kChunkDims, acc);
    __syncwarp();
  }
}

/// Keys of a tile that a query sees.
__device__ __forceinline__ int seen_keys(int visible, int first) {
  const int left = visible - first;
  return left < kKeys ? left : kKeys;
}

/// Words from a warp's ring to the weights of its tiles: the second outlives the first tile's result.
template <int kQueries>
__device__ __forceinline__ float* weights_of(float* ring, int tile) {
  return ring + tile * kQueries * kDim;
}

/// From dot products to exponentials: maxima and sums of both tiles, and weights times the values' scales.
/// `slot` is the first tile's place in the segment.
template <int kQueries>
__device__ __forceinline__ void weigh_pair(const Attend& p, const TilePair& pair, PairShared<kQueries>& s,
                                           float* ring, int slot, float (&acc)[kQueries][kLaneKeys]) {
  const int lane = static_cast<int>(threadIdx.x & 31);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    float* weights = weights_of<kQueries>(ring, t);
    const float scale0 = pair.key_scales[t][lane], scale1 = pair.key_scales[t][lane + 32];
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      const int count = seen_keys(s.visible[i], pair.first[t]);
      const float s0 = (acc[i][2 * t] * scale0) * p.scale_log2e;
      const float s1 = (acc[i][2 * t + 1] * scale1) * p.scale_log2e;
      float most = nm::from_bits(0xff800000u);
      if (lane < count) most = nm::max_f32(most, s0);
      if (lane + 32 < count) most = nm::max_f32(most, s1);
#pragma unroll
      for (int half = 16; half > 0; half /= 2)
        most = nm::max_f32(most, __shfl_xor_sync(kAllLanes, most, half));
      acc[i][2 * t] = lane < count ? nm::exp2_f32(s0 - most) : 0.0f;
      acc[i][2 * t + 1] = lane + 32 < count ? nm::exp2_f32(s1 - most) : 0.0f;
      weights[i * kPairWeightWords + lane] = acc[i][2 * t];
      weights[i * kPairWeightWords + lane + 32] = acc[i][2 * t + 1];
      if (lane == 0) s.m[i][slot + t * kAttendWarps] = most;
    }
  }
  __syncwarp();
  if (lane < 2 * kQueries) {
    const int t = lane / kQueries, i = lane % kQueries;
    s.l[i][slot + t * kAttendWarps] = sum_seen(weights_of<kQueries>(ring, t) + i * kPairWeightWords,
                                               seen_keys(s.visible[i], pair.first[t]));
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    float* weights = weights_of<kQueries>(ring, t);
    const float scale0 = pair.value_scales[t][lane], scale1 = pair.value_scales[t][lane + 32];
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      const int count = seen_keys(s.visible[i], pair.first[t]);
      weights[i * kPairWeightWords + lane] = lane < count ? acc[i][2 * t] * scale0 : 0.0f;
      weights[i * kPairWeightWords + lane + 32] = lane + 32 < count ? acc[i][2 * t + 1] * scale1 : 0.0f;
    }
  }
  __syncwarp();
}

/// Weighted values of one tile, keys ascending: eight dims a lane. `kPartial`: some query does not see all
/// keys; those past its position are selected away, not multiplied by zero.
template <int kQueries, bool kPartial>
__device__ __forceinline__ void add_tile(const std::byte* values, const float* weights, const int* visible,
                                         int first, float (&o)[kQueries][kLaneDims]) {
  constexpr int kAhead = 8;  // rows whose loads are under way
  constexpr int kRow = 2 * kDim / static_cast<int>(sizeof(uint4));
  const auto* rows = reinterpret_cast<const uint4*>(values) + (threadIdx.x & 31);
  uint4 next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = rows[i * kRow];
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
#pragma unroll
    for (int d = 0; d < kLaneDims; ++d) o[i][d] = 0;
  }
#pragma unroll 1
  for (int base = 0; base < kKeys; base += kAhead) {
    uint4 now[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) now[i] = next[i];
    if (base + kAhead < kKeys) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) next[i] = rows[(base + kAhead + i) * kRow];
    }
#pragma unroll
    for (int j = 0; j < kAhead; j += 4) {
      float x[4][kLaneDims];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint4 v = now[j + k];
        x[k][0] = low_code(v.x), x[k][1] = high_code(v.x), x[k][2] = low_code(v.y), x[k][3] = high_code(v.y);
        x[k][4] = low_code(v.z), x[k][5] = high_code(v.z), x[k][6] = low_code(v.w), x[k][7] = high_code(v.w);
      }
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        const float4 w = *reinterpret_cast<const float4*>(weights + i * kPairWeightWords + base + j);
        const float by[4] = {w.x, w.y, w.z, w.w};
        const int seen = kPartial ? visible[i] - first - base - j : 4;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) {
            const float added = nm::fma_f32(by[k], x[k][d], o[i][d]);
            o[i][d] = !kPartial || k < seen ? added : o[i][d];
          }
        }
      }
    }
  }
}

/// One tile's weighted values, whole or partial.
template <int kQueries>
__device__ __forceinline__ void add_tile_of(const TilePair& pair, int tile, const PairShared<kQueries>& s,
                                            float* ring, int least_visible, float (&o)[kQueries][kLaneDims]) {
  const float* weights = weights_of<kQueries>(ring, tile);
  const std::byte* values = tile == 0 ? pair.values[0] : pair.values[1];
  const int first = tile == 0 ? pair.first[0] : pair.first[1];
  if (least_visible >= first + kKeys) {
    add_tile<kQueries, false>(values, weights, s.visible, first, o);
  } else {
    add_tile<kQueries, true>(values, weights, s.visible, first, o);
  }
}

/// How each tile of the segment folds into what is left of it, and the segment's maximum and sum.
template <int kQueries>
__device__ __forceinline__ void fold_factors(PairShared<kQueries>& s, int begin) {
  const int tid = static_cast<int>(threadIdx.x);
  for (int at = tid; at < kQueries * nm::kSegmentTiles; at += kAttendThreads) {
    const int i = at / nm::kSegmentTiles, tile = at % nm::kSegmentTiles;
    if (begin + tile * kKeys >= s.visible[i] || tile == 0) continue;
    float left = s.m[i][0];
    for (int k = 1; k < tile; ++k) left = nm::max_f32(left, s.m[i][k]);
    s.factors[i][tile] = factors_of(left, s.m[i][tile]);
  }
}

/// Segment maximum and sum of one query a thread, and how the segment folds into the whole.
template <int kQueries, bool kWhole>
__device__ __forceinline__ void fold_segment_sums(PairShared<kQueries>& s, int begin) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kQueries || begin >= s.visible[i]) return;
  float m = s.m[i][0], l = s.l[i][0];
  for (int tile = 1; tile < nm::kSegmentTiles && begin + tile * kKeys < s.visible[i]; ++tile) {
    m = nm::max_f32(m, s.m[i][tile]);
    l = fold_by(l, s.l[i][tile], s.factors[i][tile]);
  }
  s.segment_m[i] = m;
  s.segment_l[i] = l;
  if constexpr (kWhole) {
    if (begin == 0) {
      s.whole_m[i] = m;
      s.whole_l[i] = l;
      return;
    }
    const nm::SoftmaxFold f = nm::fold_of(s.whole_m[i], m);
    s.whole_keep[i] = f.keep;
    s.whole_add[i] = f.add;
    s.whole_m[i] = f.m;
    s.whole_l[i] = nm::fold_sum(s.whole_l[i], l, f);
  }
}

/// Folds the results of eight warps, tiles ascending; a thread has one dim of all queries.
template <int kQueries>
__device__ __forceinline__ void fold_tiles(const PairShared<kQueries>& s, int begin, int half,
                                           float (&segment)[kQueries]) {
  constexpr int kRing = pair_ring_words(kQueries);
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    const float* from = s.rings + i * kDim + threadIdx.x;
    const int left = (s.visible[i] - begin + kKeys - 1) / kKeys - half * kAttendWarps;  // tiles it sees
#pragma unroll
    for (int warp = 0; warp < kAttendWarps; ++warp) {
      if (warp >= left) break;
      const int tile = half * kAttendWarps + warp;
      const float o = from[warp * kRing];
      segment[i] = tile == 0 ? o : fold_by(segment[i], o, s.factors[i][tile]);
    }
  }
}

/// The queries of a block and what they see.
struct PairBlock {
  int kv_head, first_query, queries, least_visible, most_visible;

  __device__ PairBlock(const Attend& p, int query_block, int head)
      : kv_head(head), first_query(query_block * p.block_queries) {
    const int all = p.rows * p.group;
    queries = all - first_query < p.block_queries ? all - first_query : p.block_queries;
    least_visible = p.positions[first_query / p.group] + 1;
    most_visible = p.positions[(first_query + queries - 1) / p.group] + 1;
  }
};

template <int kQueries>
__device__ __forceinline__ void stage_queries(const Attend& p, const PairBlock& block,
                                              PairShared<kQueries>& s) {
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < kQueries)
    s.visible[tid] = tid < block.queries ? p.positions[(block.first_query + tid) / p.group] + 1 : 0;
  copy_queries(p, block.kv_head, block.first_query, block.queries, kQueries, kDim, s.q[0], kDim);
  copy_wait<0>();
  __syncthreads();
}

/// One segment of one block of queries: eight warps score two tiles each, weigh the values of one, fold,
/// weigh those of the other, fold. `segment` holds the thread's dim of every query's result.
template <int kQueries, bool kWhole>
__device__ __forceinline__ void attend_segment(const Attend& p, const PairBlock& block, int begin,
                                               PairShared<kQueries>& s, float (&segment)[kQueries]) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x & 31);
  float* ring = s.rings + warp * pair_ring_words(kQueries);
  const TilePair pair(p, block.kv_head, begin / kKeys + warp, block.most_visible);
  if (pair.count > 0) {
    float acc[kQueries][kLaneKeys];
    score_pair(pair, s, ring, acc);
    weigh_pair(p, pair, s, ring, warp, acc);
  }
  __syncthreads();
  fold_factors(s, begin);
#pragma unroll 1
  for (int t = 0; t < 2; ++t) {
    if (begin + t * kAttendWarps * kKeys >= block.most_visible) break;
    if (t < pair.count) {
      float o[kQueries][kLaneDims];
      add_tile_of(pair, t, s, ring, block.least_visible, o);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
#pragma unroll
        for (int d = 0; d < kLaneDims; d += 4)
          *reinterpret_cast<float4*>(ring + i * kDim + lane * kLaneDims + d) =
              make_float4(o[i][d], o[i][d + 1], o[i][d + 2], o[i][d + 3]);
      }
    }
    __syncthreads();
    if (t == 0) fold_segment_sums<kQueries, kWhole>(s, begin);
    fold_tiles(s, begin, t, segment);
    __syncthreads();
  }
}

/// A segment a block, left as a partial, or all segments and the result.
template <int kQueries, bool kWhole>
__global__ void __launch_bounds__(kAttendThreads, 1) attend_pair_kernel(const __grid_constant__ Attend p) {
  extern __shared__ __align__(16) float attend_shared[];
  wait_for_predecessor();
  let_successor_start();
  auto& s = *reinterpret_cast<PairShared<kQueries>*>(attend_shared);
  const PairBlock block(p, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.z));
  const int chunk = static_cast<int>(blockIdx.y);
  const int tid = static_cast<int>(threadIdx.x);
  if (chunk * kSegmentPositions >= block.most_visible) return;
  stage_queries(p, block, s);
  float segment[kQueries], whole[kQueries];
  if constexpr (kWhole) {
#pragma unroll 1
    for (int begin = 0; begin < block.most_visible; begin += kSegmentPositions) {
      attend_segment<kQueries, true>(p, block, begin, s, segment);
#pragma unroll
      for (int i = 0; i < kQueries; ++i) {
        if (begin >= s.visible[i]) continue;
        whole[i] = begin == 0 ? segment[i]
                              : fold_by(whole[i], segment[i], make_float2(s.whole_keep[i], s.whole_add[i]));
      }
    }
  } else {
    attend_segment<kQueries, false>(p, block, chunk * kSegmentPositions, s, segment);
  }
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    if (s.visible[i] <= chunk * kSegmentPositions) continue;
    if constexpr (kWhole) {
      const int query = block.first_query + i;
      const int t = query / p.group, head = block.kv_head * p.group + query % p.group;
      p.out.row(t)[head * kDim + tid] =
          gated(whole[i], s.whole_l[i], p.q_gate.row(t)[(2 * head + 1) * kDim + tid]);
    } else {
      float* to = partial_of(p, block.kv_head, block.first_query + i, chunk);
      to[2 + tid] = segment[i];
      if (tid == 0) {
        to[0] = s.segment_m[i];
        to[1] = s.segment_l[i];
      }
    }
  }
}

template <int kQueries, bool kWhole>
void run(const LaunchContext& context, const Attend& args, const AttendPlan& plan) {
  static_assert(sizeof(PairShared<kQueries>) <= pair_block_bytes(kQueries));
  constexpr auto kKernel = attend_pair_kernel<kQueries, kWhole>;
  allow_all_shared<kKernel>(context);
  // Blocks that read the same keys side by side.
  const dim3 grid(static_cast<unsigned>(plan.query_blocks), static_cast<unsigned>(plan.chunks),
                  static_cast<unsigned>(args.cache.kv_heads));
  const std::size_t bytes =
      context.spread(std::int64_t{plan.live_chunks} * grid.x * grid.z, plan.shared_bytes);
  launch(context, "attend", kKernel, {grid, dim3(kAttendThreads), bytes}, args);
}

template <int kQueries>
void run_queries(const LaunchContext& context, const Attend& args, const AttendPlan& plan) {
  if (plan.span == AttendSpan::kWhole) {
    run<kQueries, true>(context, args, plan);
  } else {
    run<kQueries, false>(context, args, plan);
  }
}

}  // namespace attend_pair_cu

void run_attend_pair(const LaunchContext& context, const Attend& args, const AttendPlan& plan) {
  if (plan.block_queries == 6) {
    run_queries<6>(context, args, plan);
  } else {
    run_queries<8>(context, args, plan);
  }
}

}  // namespace mererun::cuda
