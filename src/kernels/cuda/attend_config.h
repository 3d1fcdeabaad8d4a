#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

inline constexpr int kAttendThreads = 256;
inline constexpr int kAttendQueries =
    24;  // (row, head) pairs of one KV head that share a pass over the cache

/// What one block walks: a tile or a segment, whose partial softmax a second kernel folds, or everything.
enum class AttendSpan { kTile, kSegment, kWhole };

/// How attention of `rows` rows is spread over blocks. Every tile starts from nothing and folds run left to
/// right whoever does them, so the plan changes no bit.
struct AttendPlan {
  AttendSpan span = AttendSpan::kWhole;
  int query_blocks = 0;  // of one KV head
  int chunks = 1;        // tiles or segments the pages could hold
  std::size_t partial_floats = 0;
  std::size_t shared_bytes = 0;
};

/// Words between two staged keys: odd, so that 32 lanes reading 32 keys meet 32 banks.
MERERUN_HD int key_pitch_words(int head_dim) { return (head_dim + 1) / 2 | 1; }

inline AttendPlan plan_attend(const KvLayerView& cache, int heads, int rows, int multiprocessors) {
  AttendPlan plan;
  const int group = heads / cache.kv_heads;
  const int queries = std::min(kAttendQueries, rows * group);
  plan.query_blocks = (rows * group + queries - 1) / queries;
  const std::int64_t blocks = static_cast<std::int64_t>(plan.query_blocks) * cache.kv_heads;
  if (blocks < multiprocessors && cache.page_count > 0) {
    // Tiles spread short contexts over the processors; segments leave fewer partials where they suffice.
    constexpr int kSegmentPages = numerics::kTilePositions * numerics::kSegmentTiles / kKvPagePositions;
    const std::int64_t segments = (cache.page_count + kSegmentPages - 1) / kSegmentPages;
    const bool by_tile = segments * blocks < 2 * static_cast<std::int64_t>(multiprocessors);
    const int positions = numerics::kTilePositions * (by_tile ? 1 : numerics::kSegmentTiles);
    plan.span = by_tile ? AttendSpan::kTile : AttendSpan::kSegment;
    plan.chunks = (cache.page_count * kKvPagePositions + positions - 1) / positions;
    plan.partial_floats = static_cast<std::size_t>(rows) * static_cast<std::size_t>(heads) *
                          static_cast<std::size_t>(plan.chunks) *
                          static_cast<std::size_t>(cache.head_dim + 2);
  }
  const auto dim = static_cast<std::size_t>(cache.head_dim);
  const auto q = static_cast<std::size_t>(queries);
  constexpr std::size_t kKeys = numerics::kTilePositions;
  const std::size_t folds = plan.span == AttendSpan::kTile ? 0 : plan.span == AttendSpan::kSegment ? 1 : 2;
  plan.shared_bytes = 4 * kKeys * static_cast<std::size_t>(key_pitch_words(cache.head_dim))  // keys
                      + 4 * kKeys * ((dim + 1) / 2)                                          // values
                      + 4 * 2 * kKeys                                                        // their scales
                      + 4 * q * (dim + 3)                                                    // queries
                      + 2 * 4 * q * kKeys                                                    // weights
                      + 4 * folds * q * dim + 4 * 16 * q;
  return plan;
}

}  // namespace mererun::cuda
