#pragma once

#include "base/thread_pool.h"
#include "device/buffer.h"
#include "kernels/cpu/packed_view.h"
#include "kernels/linear.h"
#include "kernels/on_converted.h"
#include "tensor/linear_source.h"

namespace mererun::cpu {

/// A linear weight in the layout of PackedView. BF16 rows stay where the checkpoint has them; everything else
/// is repacked into memory of its own (huge pages where the system grants them).
class PackedWeight final : public LinearWeight {
 public:
  /// Repacks on all workers of the pool. `on_converted` (may be empty) is told which bytes are not read
  /// again. Errors: kOutOfMemory.
  PackedWeight(const LinearSource& source, ThreadPool& pool, const OnConverted& on_converted);

  const PackedView& view() const { return view_; }
  std::size_t owned_bytes() const override { return memory_.size_bytes(); }

 private:
  Buffer memory_;
  PackedView view_;
};

/// Memory that a PackedWeight of this source owns, in bytes; 0 for BF16 rows, which stay where they are.
std::size_t packed_bytes(const LinearSource& source);

/// An embedding matrix, read row by row where the checkpoint has it.
class StoredWeight final : public LinearWeight {
 public:
  explicit StoredWeight(const LinearSource& source)
      : LinearWeight(source.experts, source.out, source.in), source_(source) {}

  const LinearSource& source() const { return source_; }
  std::size_t owned_bytes() const override { return 0; }

 private:
  LinearSource source_;
};

/// Zeroed memory aligned to 64 bytes; large blocks are page-aligned and marked for huge pages. Errors:
/// kOutOfMemory.
Buffer allocate_pages(std::size_t bytes);

}  // namespace mererun::cpu
