#include "kernels/gathered_head.h"

#include <cstring>

namespace mererun {

namespace {
constexpr std::size_t kAlignment = 64;
}

void GatheredHead::reserve(int positions, int head_dim) {
  const int pages = (positions + kKvPagePositions - 1) / kKvPagePositions;
  if (pages <= view_.page_count && head_dim == view_.head_dim) return;
  const std::size_t codes =
      static_cast<std::size_t>(kKvPagePositions) * static_cast<std::size_t>(head_dim) * sizeof(std::int16_t);
  constexpr std::size_t kScales = kKvPagePositions * sizeof(float);
  const std::size_t page_bytes = (2 * (codes + kScales) + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.assign(page_bytes * static_cast<std::size_t>(pages) + kAlignment, std::byte{0});
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
  std::byte* first = bytes_.data() + (kAlignment - address % kAlignment) % kAlignment;
  pages_.clear();
  for (int i = 0; i < pages; ++i) pages_.push_back(first + page_bytes * static_cast<std::size_t>(i));
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

int GatheredHead::gather(const KvLayerView& from, int kv_head, std::span<const std::int32_t> blocks,
                         int position) {
  const int tail_first = (position + 1) / kIndexBlockPositions * kIndexBlockPositions;
  const int tail = position + 1 - tail_first;
  const int listed = static_cast<int>(blocks.size()) * kIndexBlockPositions;
  reserve(listed + tail, from.head_dim);
  int to = 0;
  for (const std::int32_t block : blocks) {
    copy(from, kv_head, block * kIndexBlockPositions, kIndexBlockPositions, to);
    to += kIndexBlockPositions;
  }
  if (tail > 0) copy(from, kv_head, tail_first, tail, to);
  return listed + tail;
}

}  // namespace mererun
