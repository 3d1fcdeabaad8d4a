// Sparse attention: what a row attends to is copied together, then `attend` runs over the copy.

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/sparse.h"

namespace mererun::cuda {

inline namespace attend_blocks_cu {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Gather {
  const int* positions;
  Matrix<const int> blocks;
  int chosen;  // blocks a row
  KvLayerView from, to;
  std::byte* memory;  // pages of row 0, then of row 1, ...
  std::size_t page_bytes;
  std::byte** table;  // [T][to.page_count]
  int* last;          // [T] the last entry of each row's list
};

/// One vector of int16 codes, by one warp.
__device__ void copy_codes(const std::byte* from, std::byte* to, int dim) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const auto bits = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  if (dim % 8 == 0 && bits % sizeof(uint4) == 0) {
    for (int i = lane; i < dim / 8; i += 32)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    return;
  }
  for (int i = lane; i < dim; i += 32)
    reinterpret_cast<std::int16_t*>(to)[i] = reinterpret_cast<const std::int16_t*>(from)[i];
}

/// One warp: entry e of one row's list, for one KV head.
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ Gather p) {
  wait_for_predecessor();
  let_successor_start();
  const int e = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.y);
  const int t = static_cast<int>(blockIdx.z);
  const bool is_first = (threadIdx.x & 31) == 0;
  const int visible = p.positions[t] + 1;
  const int listed = p.chosen * kIndexBlockPositions;
  const int tail_first = visible / kIndexBlockPositions * kIndexBlockPositions;
  const int entries = listed + visible - tail_first;
  if (head == 0 && is_first) {
    if (e < p.to.page_count) {
      const std::int64_t page = static_cast<std::int64_t>(t) * p.to.page_count + e;
      p.table[page] = p.memory + page * static_cast<std::int64_t>(p.page_bytes);
    }
    if (e == 0) p.last[t] = entries - 1;
  }
  if (e >= entries) return;
  const int position =
      e < listed ? p.blocks.row(t)[e / kIndexBlockPositions] * kIndexBlockPositions + e % kIndexBlockPositions
                 : tail_first + e - listed;
  const std::byte* source = p.from.pages[position / kKvPagePositions];
  const std::int64_t page = static_cast<std::int64_t>(t) * p.to.page_count + e / kKvPagePositions;
  std::byte* target = p.memory + page * static_cast<std::int64_t>(p.page_bytes);
  const std::int64_t source_slot =
      static_cast<std::int64_t>(head) * kKvPagePositions + position % kKvPagePositions;
  const std::int64_t target_slot = static_cast<std::int64_t>(head) * kKvPagePositions + e % kKvPagePositions;
  const std::int64_t row =
      static_cast<std::int64_t>(p.from.head_dim) * static_cast<std::int64_t>(sizeof(std::int16_t));
  copy_codes(source + p.from.key_codes + source_slot * row, target + p.to.key_codes + target_slot * row,
             p.from.head_dim);
  copy_codes(source + p.from.value_codes + source_slot * row, target + p.to.value_codes + target_slot * row,
             p.from.head_dim);
  if (!is_first) return;
  const auto scale = [&](std::size_t to, std::size_t from) {
    reinterpret_cast<float*>(target + to)[target_slot] =
        reinterpret_cast<const float*>(source + from)[source_slot];
  };
  scale(p.to.key_scales, p.from.key_scales);
  scale(p.to.value_scales, p.from.value_scales);
}

}  // namespace attend_blocks_cu

GatheredRows plan_gathered_rows(const AttendBlocksParams& p) {
  constexpr std::size_t kAlignment = 256;
  GatheredRows gathered;
  KvLayerView& to = gathered.layout;
  const auto vectors = static_cast<std::size_t>(p.cache.kv_heads) * kKvPagePositions;
  const std::size_t codes = vectors * static_cast<std::size_t>(p.cache.head_dim) * sizeof(std::int16_t);
  const std::size_t scales = vectors * sizeof(float);
  const int most = p.blocks.cols * kIndexBlockPositions + kIndexBlockPositions - 1;
  to.kv_heads = p.cache.kv_heads;
  to.head_dim = p.cache.head_dim;
  to.page_count = (most + kKvPagePositions - 1) / kKvPagePositions;
  to.key_codes = 0;
  to.value_codes = codes;
  to.key_scales = 2 * codes;
  to.value_scales = 2 * codes + scales;
  gathered.page_bytes = (2 * (codes + scales) + kAlignment - 1) / kAlignment * kAlignment;
  gathered.rows = static_cast<int>(
      std::clamp<std::size_t>(kGatheredBytes / gathered.row_bytes(), 1, static_cast<std::size_t>(p.q.rows)));
  return gathered;
}

inline namespace attend_blocks_cu {

void attend_part(const LaunchContext& context, SparseScratch& scratch, const AttendBlocksParams& p,
                 const GatheredRows& gathered) {
  const int rows = p.q.rows;
  const auto most = static_cast<std::size_t>(gathered.rows);  // scratch of one size, whatever is left over
  const int row_pages = gathered.layout.page_count;
  auto* memory = scratch.pages.get_array<std::byte>(most * gathered.row_bytes(), context);
  auto** table = scratch.table.get_array<std::byte*>(most * static_cast<std::size_t>(row_pages), context);
  int* last = scratch.last.get_array<int>(most, context);
  const Gather args{p.positions.row<const int>(0),
                    matrix<const int>(p.blocks),
                    p.blocks.cols,
                    p.cache,
                    gathered.layout,
                    memory,
                    gathered.page_bytes,
                    table,
                    last};
  const int entries = (p.blocks.cols + 1) * kIndexBlockPositions - 1;
  launch(context, "attend_blocks", gather_kernel,
         {dim3(blocks_for(entries, kWarps), static_cast<unsigned>(p.cache.kv_heads),
               static_cast<unsigned>(rows)),
          dim3(kThreads)},
         args);
  KvLayerView own = gathered.layout;
  own.pages = table;
  const AttendPlan plan =
      plan_attend_rows(own, p.heads, rows, context.multiprocessors, context.shared_bytes_per_block);
  run_attend(context,
             {.q = p.q,
              .q_gate = p.q_gate,
              .positions = make_view(last, DType::kI32, 1, rows),
              .cache = own,
              .heads = p.heads,
              .scale_log2e = p.scale_log2e,
              .out = p.out},
             plan, scratch.partials.get_array<float>(plan.partial_floats, context), row_pages);
}

}  // namespace attend_blocks_cu

void run_attend_blocks(const LaunchContext& context, SparseScratch& scratch, const AttendBlocksParams& p) {
  const GatheredRows gathered = plan_gathered_rows(p);
  for (int first = 0; first < p.q.rows; first += gathered.rows) {
    const int rows = std::min(gathered.rows, p.q.rows - first);
    AttendBlocksParams part = p;
    for (TensorView AttendBlocksParams::*view : {&AttendBlocksParams::q, &AttendBlocksParams::q_gate,
                                                 &AttendBlocksParams::blocks, &AttendBlocksParams::out})
      part.*view = (p.*view).row_range(first, rows);
    part.positions = p.positions.col_range(first, rows);
    attend_part(context, scratch, part, gathered);
  }
}

}  // namespace mererun::cuda
