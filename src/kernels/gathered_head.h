#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"

namespace mererun {

/// The keys and values of one KV head that one row attends to, copied in the order of the row's list into
/// pages of their own. To `attend` they are positions 0, 1, 2, ..., so a list of every position gives the
/// bits of dense attention. Host memory; reused from row to row.
///
/// Thread-safety: one thread at a time.
class GatheredHead {
 public:
  /// Copies the positions of `blocks` (ascending) and the tail after the last complete block at `position`.
  /// Returns how many were copied.
  int gather(const KvLayerView& from, int kv_head, std::span<const std::int32_t> blocks, int position);
  /// One KV head of as many positions; valid until the next gather.
  KvLayerView view() const { return view_; }

 private:
  void reserve(int positions, int head_dim);
  void copy(const KvLayerView& from, int kv_head, int first, int count, int to);

  std::vector<std::byte> bytes_;
  std::vector<std::byte*> pages_;
  KvLayerView view_;
};

}  // namespace mererun
