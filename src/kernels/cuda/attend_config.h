#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline constexpr int kAttendThreads = 256;
/// Most queries, (row, head) pairs of one KV head, that share a pass over the cache.
inline constexpr int kAttendQueries = 24;

/// What one block walks: a tile or a segment, whose partial softmax a second kernel folds, or everything.
enum class AttendSpan { kTile, kSegment, kWhole };

/// How attention of `rows` rows is spread over blocks. Every tile starts from nothing and folds run left to
/// right whoever does them, so the plan changes no bit.
struct AttendPlan {
  AttendSpan span = AttendSpan::kWhole;
  int block_queries = 0;   // queries of one block
  int query_blocks = 0;    // of one KV head
  int chunks = 1;          // tiles or segments the pages could hold
  int live_chunks = 1;     // those that hold a position at least
  bool is_paired = false;  // two tiles a warp (attend_pair.h); else the form for any head
  std::size_t partial_floats = 0;
  std::size_t shared_bytes = 0;
};

/// Words between two staged keys: odd, so that 32 lanes reading 32 keys meet 32 banks.
MERERUN_HD int key_pitch_words(int head_dim) { return (head_dim + 1) / 2 | 1; }

/// Shared memory of a block, whatever its queries: keys, values, their scales.
inline std::size_t attend_tile_bytes(int head_dim) {
  constexpr std::size_t kKeys = numerics::kTilePositions;
  const auto value_words = static_cast<std::size_t>((head_dim + 1) / 2);
  return 4 * kKeys * (static_cast<std::size_t>(key_pitch_words(head_dim)) + value_words + 2);
}
/// And of each query: itself, two rows of weights, a sum for each fold, its bookkeeping.
inline std::size_t attend_query_bytes(int head_dim, AttendSpan span) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t folds = span == AttendSpan::kTile ? 0 : span == AttendSpan::kSegment ? 1 : 2;
  return 4 * ((dim + 3) + 2 * numerics::kTilePositions + folds * dim + 16);
}

/// Head dims of the form with two tiles a warp, words between two keys of its ring (32 dims of int16; the
/// four more let 8 lanes read 16 bytes of 8 keys from 32 banks) and between the weights of two queries.
inline constexpr int kPairHeadDim = 256;
inline constexpr int kPairKeyWords = 20;
inline constexpr int kPairWeightWords = numerics::kTilePositions + 4;

/// Words of a warp's ring: two stages of keys, and later a tile's result and the weights of the next.
MERERUN_HD constexpr int pair_ring_words(int queries) {
  const int stages = 2 * 2 * numerics::kTilePositions * kPairKeyWords;
  const int results = queries * (kPairHeadDim + kPairWeightWords);
  return stages > results ? stages : results;
}
/// Shared memory of such a block besides its rings: each query, maxima, sums and factors of its tiles.
MERERUN_HD constexpr int pair_block_bytes(int queries) {
  return (4 * queries * (kPairHeadDim + 4 * numerics::kSegmentTiles + 7) + 15) / 16 * 16 + 16;
}

inline constexpr int kSegmentPages = numerics::kSegmentPositions / kKvPagePositions;

/// Floats of the partials of all queries: of each chunk a maximum, a sum and a vector.
inline std::size_t attend_partial_floats(int rows, int heads, int chunks, int head_dim) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads) * static_cast<std::size_t>(chunks) *
         static_cast<std::size_t>(head_dim + 2);
}

/// Plan for heads of any size: as many queries a block as fit in `shared_per_block` bytes in every span.
inline AttendPlan plan_attend_any(const KvLayerView& cache, int heads, int rows, int multiprocessors,
                                  int shared_per_block) {
  AttendPlan plan;
  const int queries = rows * (heads / cache.kv_heads);
  const auto left = shared_per_block - static_cast<std::int64_t>(attend_tile_bytes(cache.head_dim));
  const auto each = static_cast<std::int64_t>(attend_query_bytes(cache.head_dim, AttendSpan::kWhole));
  plan.block_queries =
      std::min(queries, static_cast<int>(std::clamp<std::int64_t>(left / each, 1, kAttendQueries)));
  plan.query_blocks = (queries + plan.block_queries - 1) / plan.block_queries;
  const std::int64_t blocks = static_cast<std::int64_t>(plan.query_blocks) * cache.kv_heads;
  if (blocks < multiprocessors && cache.page_count > 0) {
    // Tiles spread short contexts over the processors; segments leave fewer partials where they suffice.
    const std::int64_t segments = (cache.page_count + kSegmentPages - 1) / kSegmentPages;
    const bool by_tile = segments * blocks < 2 * static_cast<std::int64_t>(multiprocessors);
    const int positions = by_tile ? numerics::kTilePositions : numerics::kSegmentPositions;
    plan.span = by_tile ? AttendSpan::kTile : AttendSpan::kSegment;
    plan.chunks = (cache.page_count * kKvPagePositions + positions - 1) / positions;
    plan.live_chunks = ((cache.page_count - 1) * kKvPagePositions + positions) / positions;
    plan.partial_floats = attend_partial_floats(rows, heads, plan.chunks, cache.head_dim);
  }
  plan.shared_bytes = attend_tile_bytes(cache.head_dim) + static_cast<std::size_t>(plan.block_queries) *
                                                              attend_query_bytes(cache.head_dim, plan.span);
  return plan;
}

/// The same where every row has a cache of its own: no block has queries of two rows.
inline AttendPlan plan_attend_rows(const KvLayerView& cache, int heads, int rows, int multiprocessors,
                                   int shared_per_block) {
  AttendPlan plan = plan_attend_any(cache, heads, rows, multiprocessors, shared_per_block);
  const int group = heads / cache.kv_heads;
  plan.block_queries = std::min(plan.block_queries, group);
  while (group % plan.block_queries != 0) --plan.block_queries;
  plan.query_blocks = rows * (group / plan.block_queries);
  return plan;
}

/// Plan for heads of 256 dims: two tiles a warp, eight warps and six or eight queries a block. More queries a
/// block read less but were slower (docs/performance-cuda.md).
inline AttendPlan plan_attend_pair(const KvLayerView& cache, int heads, int rows, int multiprocessors) {
  AttendPlan plan;
  plan.is_paired = true;
  const int queries = rows * (heads / cache.kv_heads);
  const auto blocks_of = [&](int each) { return (queries + each - 1) / each; };
  plan.block_queries = blocks_of(6) == blocks_of(8) ? 6 : 8;
  plan.query_blocks = blocks_of(plan.block_queries);
  if (plan.query_blocks * static_cast<std::int64_t>(cache.kv_heads) < multiprocessors) {
    plan.span = AttendSpan::kSegment;
    plan.chunks = plan.live_chunks = (cache.page_count + kSegmentPages - 1) / kSegmentPages;
    plan.partial_floats = attend_partial_floats(rows, heads, plan.chunks, kPairHeadDim);
  }
  plan.shared_bytes =
      static_cast<std::size_t>(pair_block_bytes(plan.block_queries)) +
      4 * (kAttendThreads / 32) * static_cast<std::size_t>(pair_ring_words(plan.block_queries));
  return plan;
}

inline AttendPlan plan_attend(const KvLayerView& cache, int heads, int rows, int multiprocessors,
                              int shared_per_block) {
  // Below this many pairs of a query and a tile the form that spreads tiles over all processors is faster.
  constexpr std::int64_t kLeastPairs = 4096;
  constexpr int kPageTiles = kKvPagePositions / numerics::kTilePositions;
  const bool is_aligned = cache.key_codes % 16 == 0 && cache.value_codes % 16 == 0;
  if (cache.head_dim == kPairHeadDim && is_aligned &&
      std::int64_t{rows} * heads * cache.page_count * kPageTiles >= kLeastPairs) {
    const AttendPlan plan = plan_attend_pair(cache, heads, rows, multiprocessors);
    if (plan.shared_bytes <= static_cast<std::size_t>(shared_per_block)) return plan;
  }
  return plan_attend_any(cache, heads, rows, multiprocessors, shared_per_block);
}

}  // namespace mererun::cuda
