#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/buffer.h"
#include "kernels/sparse_attention.h"

namespace mererun {

/// The keys and values of one KV head that one row attends to, copied in the order of the row's list into
/// pages of their own. To `attend` they are positions 0, 1, 2, ..., so a list of every position gives the
/// bits of dense attention. Host memory; reused from row to row.
///
/// Thread-safety: one thread at a time.
class GatheredHead {
 public:
  /// Copies what one row of p attends to with the query heads of one KV head: its blocks and the tail after
  /// the last complete one. Returns the dense attention that gives their outputs: views of p and of this,
  /// valid until the next gather.
  AttendParams gather(const AttendBlocksParams& p, int row, int kv_head);

 private:
  void reserve(int positions, int head_dim);
  void copy(const KvLayerView& from, int kv_head, int first, int count, int to);

  Buffer memory_;
  std::vector<std::byte*> pages_;
  KvLayerView view_;
  std::int32_t last_ = 0;  // position of the last one copied
};

}  // namespace mererun
