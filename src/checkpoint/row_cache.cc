#include "checkpoint/row_cache.h"

namespace mererun {

std::optional<std::size_t> RowCache::claim(std::int64_t row, std::uint64_t pending) {
  if (slots_.empty() || slots_[next_].pending != 0) return std::nullopt;
  const std::size_t slot = next_;
  next_ = (next_ + 1) % slots_.size();
  if (slots_[slot].row >= 0) index_.erase(slots_[slot].row);
  slots_[slot] = {row, pending};
  index_[row] = slot;
  return slot;
}

void RowCache::settle(std::size_t slot, bool succeeded) {
  slots_[slot].pending = 0;
  if (succeeded) return;
  index_.erase(slots_[slot].row);
  slots_[slot].row = -1;
}

}  // namespace mererun
