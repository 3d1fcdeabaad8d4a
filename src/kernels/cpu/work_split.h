#pragma once

#include <algorithm>
#include <cstdint>

namespace mererun::cpu {

/// Items of one kind inside a range of costs: item i spans [offset + i * cost, offset + (i + 1) * cost). A
/// worker that holds [begin, end) of all costs owns the items that start there.
struct CostRange {
  std::int64_t offset = 0;
  std::int64_t cost = 1;
  int count = 0;

  int first_at(std::int64_t position) const {
    const std::int64_t before = (position - offset + cost - 1) / cost;
    return position <= offset ? 0 : static_cast<int>(std::min<std::int64_t>(before, count));
  }
  std::int64_t end() const { return offset + cost * count; }
};

}  // namespace mererun::cpu
