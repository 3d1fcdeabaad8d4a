#pragma once

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace mererun::cpu {

/// Elements of light work that one worker finishes before it could have woken another.
inline constexpr std::int64_t kSharedElements = 16 * 1024;
/// Columns of one item of elementwise work.
inline constexpr int kSharedColumns = 512;

template <typename F>
void CpuOps::share(int n, std::int64_t elements, F&& body) {
  if (elements <= kSharedElements) {
    if (n > 0) body(0, n, 0);
    return;
  }
  pool_.parallel_for(n, [&](std::int64_t begin, std::int64_t end, int w) {
    body(static_cast<int>(begin), static_cast<int>(end), w);
  });
}

template <typename F>
void CpuOps::share_columns(int rows, int columns, std::int64_t elements, F&& body) {
  const int blocks = (columns + kSharedColumns - 1) / kSharedColumns;
  share(rows * blocks, elements, [&](int begin, int end, int) {
    for (int item = begin; item < end; ++item) {
      const int first = item % blocks * kSharedColumns;
      body(item / blocks, first, std::min(first + kSharedColumns, columns));
    }
  });
}

/// The packed form of a weight. Errors: kInvalidArgument if another backend prepared it.
const PackedView& packed_view(const LinearWeight* weight);

}  // namespace mererun::cpu
