#include "kernels/gathered_head.h"

#include <cstring>

namespace mererun {

namespace {
constexpr std::size_t kAlignment = 64;  // of allocate_host
}

void GatheredHead::reserve(int positions, int head_dim) {
  const int pages = (positions + kKvPagePositions - 1) / kKvPagePositions;
  if (pages <= view_.page_count && head_dim == view_.head_dim) return;
  const std::size_t codes =
      static_cast<std::size_t>(kKvPagePositions) * static_cast<std::size_t>(head_dim) * sizeof(std::int16_t);
  constexpr std::size_t kScales = kKvPagePositions * sizeof(float);
  const std::size_t page_bytes = (2 * (codes + kScales) + kAlignment - 1) / kAlignment * kAlignment;
  memory_ = allocate_host(page_bytes * static_cast<std::size_t>(pages));
  pages_.clear();
  for (int i = 0; i < pages; ++i)
    pages_.push_back(memory_.as<std::byte>() + page_bytes * static_cast<std::size_t>(i));
  view_ = {.pages = pages_.data(),
           .page_count = pages,
           .key_codes = 0,
           .key_scales = 2 * codes,
           .value_codes = codes,
           .value_scales = 2 * codes + kScales,
           .kv_heads = 1,
           .head_dim = head_dim};
}

/// Copies `count` positions of one block, from `first` on, to list entries from `to` on.
void GatheredHead::copy(const KvLayerView& from, int kv_head, int first, int count, int to) {
  const std::byte* source = from.pages[first / kKvPagePositions];
  const auto slot = static_cast<std::size_t>(kv_head * kKvPagePositions + first % kKvPagePositions);
  const std::size_t row = static_cast<std::size_t>(from.head_dim) * sizeof(std::int16_t);
  // A block never straddles two pages, here or there: four divides a page and every start.
  const auto at = static_cast<std::size_t>(to % kKvPagePositions);
  const auto rows = static_cast<std::size_t>(count);
  std::byte* page = pages_[static_cast<std::size_t>(to / kKvPagePositions)];
  const auto move = [&](std::size_t to_array, std::size_t from_array, std::size_t bytes) {
    std::memcpy(page + to_array + at * bytes, source + from_array + slot * bytes, rows * bytes);
  };
  move(view_.key_codes, from.key_codes, row);
  move(view_.value_codes, from.value_codes, row);
  move(view_.key_scales, from.key_scales, sizeof(float));
  move(view_.value_scales, from.value_scales, sizeof(float));
}

AttendParams GatheredHead::gather(const AttendBlocksParams& p, int row, int kv_head) {
  const int dim = p.cache.head_dim;
  const int visible = p.positions.row<const std::int32_t>(0)[row] + 1;
  const int tail_first = visible / kIndexBlockPositions * kIndexBlockPositions;
  const int tail = visible - tail_first;
  const int listed = p.blocks.cols * kIndexBlockPositions;
  reserve(listed + tail, dim);
  const auto* blocks = p.blocks.row<const std::int32_t>(row);
  for (int i = 0; i < p.blocks.cols; ++i) {
    copy(p.cache, kv_head, blocks[i] * kIndexBlockPositions, kIndexBlockPositions, i * kIndexBlockPositions);
  }
  if (tail > 0) copy(p.cache, kv_head, tail_first, tail, listed);
  last_ = listed + tail - 1;
  const int group = p.heads / p.cache.kv_heads;
  const auto heads_of = [&](const TensorView& view, int per_head) {
    return view.row_range(row, 1).col_range(kv_head * group * per_head, group * per_head);
  };
  return {.q = heads_of(p.q, dim),
          .q_gate = heads_of(p.q_gate, 2 * dim),
          .positions = make_view(&last_, DType::kI32, 1, 1),
          .cache = view_,
          .heads = group,
          .scale_log2e = p.scale_log2e,
          .out = heads_of(p.out, dim)};
}

}  // namespace mererun
