#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/delta.h"
#include "tests/kernels/op_data.h"

namespace mererun {

inline std::size_t size(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

/// What delta_prepare reads.
struct DeltaRows {
  DeltaShape shape;
  int rows;
  std::vector<float> inputs, window, conv_weight, a, b, a_log, dt_bias;
};

/// Made from a seed.
inline DeltaRows make_delta_rows(const DeltaShape& s, int rows, std::uint32_t seed) {
  Numbers n(seed);
  const int c = s.conv_channels();
  DeltaRows x{s,
              rows,
              n.normals(size(rows, c)),
              n.normals(size(s.conv_taps - 1, c)),
              n.normals(size(s.conv_taps, c), 0.5f),
              n.normals(size(rows, s.value_heads)),
              n.normals(size(rows, s.value_heads)),
              n.normals(size(1, s.value_heads)),
              n.normals(size(1, s.value_heads))};
  return x;
}

}  // namespace mererun
