#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace mererun {

/// Rows of a table that were read last or are being read, in a ring: the oldest goes first, but none that is
/// still being read.
///
/// Thread-safety: one thread at a time; what fills a slot under way may run beside it.
class RowCache {
 public:
  RowCache(int rows, std::size_t row_bytes)
      : row_bytes_(row_bytes),
        slots_(static_cast<std::size_t>(rows)),
        bytes_(static_cast<std::size_t>(rows) * row_bytes) {}

  int size() const { return static_cast<int>(slots_.size()); }

  /// The slot of a row.
  std::optional<std::size_t> find(std::int64_t row) const {
    const auto it = index_.find(row);
    return it == index_.end() ? std::nullopt : std::optional(it->second);
  }
  /// The reads that fill a slot, 0 once it is filled.
  std::uint64_t pending(std::size_t slot) const { return slots_[slot].pending; }
  std::byte* data(std::size_t slot) { return bytes_.data() + slot * row_bytes_; }

  /// A slot for a row that has none, to be filled by reads `pending` (0: at once, by the caller). None where
  /// the oldest row is still being read, or without a ring.
  std::optional<std::size_t> claim(std::int64_t row, std::uint64_t pending);
  /// The reads of a slot are done: the row stays, or, if they failed, goes.
  void settle(std::size_t slot, bool succeeded);

 private:
  struct Slot {
    std::int64_t row = -1;
    std::uint64_t pending = 0;
  };

  std::size_t row_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::byte> bytes_;
  std::unordered_map<std::int64_t, std::size_t> index_;
  std::size_t next_ = 0;
};

}  // namespace mererun
