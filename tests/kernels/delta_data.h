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

/// delta_prepare's inputs and outputs in a backend's memory: rows [first, first + count) behind `window`.
struct PrepareMatrices {
  DeltaShape shape;
  Floats inputs, window, conv_weight, a, b, a_log, dt_bias;
  Floats q, k, v, alpha, beta;

  PrepareMatrices(Ops& ops, const DeltaRows& x, int first, int count, const std::vector<float>& before)
      : shape(x.shape),
        inputs(ops, count, shape.conv_channels(), rows_of(x.inputs, shape.conv_channels(), first, count)),
        window(ops, shape.conv_taps - 1, shape.conv_channels(), before),
        conv_weight(ops, shape.conv_taps, shape.conv_channels(), x.conv_weight),
        a(ops, count, shape.value_heads, rows_of(x.a, shape.value_heads, first, count)),
        b(ops, count, shape.value_heads, rows_of(x.b, shape.value_heads, first, count)),
        a_log(ops, 1, shape.value_heads, x.a_log),
        dt_bias(ops, 1, shape.value_heads, x.dt_bias),
        q(ops, count, shape.key_width()),
        k(ops, count, shape.key_width()),
        v(ops, count, shape.value_width()),
        alpha(ops, count, shape.value_heads),
        beta(ops, count, shape.value_heads) {}

  DeltaPrepareParams params() const {
    return {.shape = shape,
            .inputs = inputs.view(),
            .window = window.view(),
            .conv_weight = conv_weight.view(),
            .a = a.view(),
            .b = b.view(),
            .a_log = a_log.view(),
            .dt_bias = dt_bias.view(),
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .alpha = alpha.view(),
            .beta = beta.view()};
  }
};

}  // namespace mererun
