#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/attend_config.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/launch.h"
#include "kernels/sparse_attention.h"

namespace mererun::cuda {

// Block-sparse attention of Flash-Next; params have been validated and hold at least one row.

void run_index_prepare(const LaunchContext& context, const IndexPrepareParams& p);

/// Scores of one row: one for every block that the cache's pages could hold.
inline std::size_t block_scores(const KvLayerView& cache) {
  return static_cast<std::size_t>(cache.page_count) * kIndexPageBlocks;
}
/// `scores` holds rows * block_scores(p.cache) floats.
void run_select_blocks(const LaunchContext& context, const SelectBlocksParams& p, float* scores);

/// How the keys and values that each row attends to are copied together: to `attend` they are positions 0, 1,
/// 2, ... of a cache that is the row's own, so that sparse attention is dense attention over the list.
struct GatheredRows {
  KvLayerView layout;  // of a row's pages; no table
  std::size_t page_bytes = 0;
  int rows = 1;  // at a time

  std::size_t row_bytes() const { return page_bytes * static_cast<std::size_t>(layout.page_count); }
};
/// Memory that rows gathered at a time stay within, unless one row takes more.
inline constexpr std::size_t kGatheredBytes = std::size_t{256} << 20;
GatheredRows plan_gathered_rows(const AttendBlocksParams& p);

/// Scratch of run_attend_blocks: pages, their table with each row's last list entry, partial results.
struct SparseScratch {
  DeviceScratch pages, table, last, partials;
};
void run_attend_blocks(const LaunchContext& context, SparseScratch& scratch, const AttendBlocksParams& p);

}  // namespace mererun::cuda
