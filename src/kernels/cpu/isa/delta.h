#pragma once

// The gated delta rule: one vector of state columns at a time, held in the first-level cache between rows.

#include "kernels/cpu/isa/common.h"

/// Channels [first, first + n) of row t: convolution, then SiLU.
MERERUN_VEC void convolve(const DeltaPrepareParams& p, int t, int first, int n, float* out) {
  const int taps = p.shape.conv_taps;
  for (int c = 0; c < n; ++c) out[c] = 0;
  for (int j = 0; j < taps; ++j) {
    const int source = t - taps + 1 + j;  // row of `inputs`; negative: in the window
    const float* x =
        (source >= 0 ? line<const float>(p.inputs, source) : line<const float>(p.window, source + taps - 1)) +
        first;
    const float* w = line<const float>(p.conv_weight, j) + first;
    for (int c = 0; c < n; ++c) out[c] = numerics::fma_f32(w[c], x[c], out[c]);
  }
  for (int c = 0; c < n; ++c) out[c] = numerics::silu_f32(out[c]);
}

MERERUN_VEC float inverse_norm(const float* x, int n) {
  return numerics::rsqrt_f32(numerics::sum_of_squares(x, n) + numerics::kL2NormEps);
}

void delta_prepare(const DeltaPrepareParams& p, int begin, int end) {
  const DeltaShape& s = p.shape;
  const int key_width = s.key_heads * s.key_dim;
  const int items = s.key_heads + s.value_heads;
  const float query_scale = numerics::inverse_root(s.key_dim);
  for (int item = begin; item < end; ++item) {
    const int t = item / items;
    int h = item % items;
    if (h < s.key_heads) {
      float* q = line<float>(p.q, t) + h * s.key_dim;
      float* k = line<float>(p.k, t) + h * s.key_dim;
      convolve(p, t, h * s.key_dim, s.key_dim, q);
      convolve(p, t, key_width + h * s.key_dim, s.key_dim, k);
      const float q_norm = inverse_norm(q, s.key_dim);
      const float k_norm = inverse_norm(k, s.key_dim);
      for (int i = 0; i < s.key_dim; ++i) q[i] = (q[i] * q_norm) * query_scale;
      for (int i = 0; i < s.key_dim; ++i) k[i] = k[i] * k_norm;
      continue;
    }
    h -= s.key_heads;
    convolve(p, t, 2 * key_width + h * s.value_dim, s.value_dim, line<float>(p.v, t) + h * s.value_dim);
    line<float>(p.alpha, t)[h] = numerics::delta_decay(
        line<const float>(p.a_log, 0)[h], line<const float>(p.a, t)[h], line<const float>(p.dt_bias, 0)[h]);
    line<float>(p.beta, t)[h] = numerics::sigmoid_f32(line<const float>(p.b, t)[h]);
  }
}

MERERUN_VEC FN load_some(const float* p, int count) {
  if (count == kLanes) return load<FN>(p);
  float lanes[kLanes] = {};
  for (int c = 0; c < count; ++c) lanes[c] = p[c];
  return load<FN>(lanes);
}
MERERUN_VEC void store_some(float* p, FN v, int count) {
  if (count == kLanes) return store(p, v);
  float lanes[kLanes];
  store(lanes, v);
  for (int c = 0; c < count; ++c) p[c] = lanes[c];
}

/// kLanes columns of one head's state.
struct DeltaColumns {
  TensorView view;
  int first_row, rows;      // of the head
  int first_column, count;  // count <= kLanes exist
  float* next;              // the columns that follow these, [rows] lines as far apart as these; null: none

  MERERUN_VEC float* at(int i) const { return line<float>(view, first_row + i) + first_column; }
  MERERUN_VEC FN read(int i) const { return load_some(at(i), count); }
  MERERUN_VEC void write(int i, FN s) const { store_some(at(i), s, count); }
  /// A column has one line in every row of the state, which no hardware prefetcher follows.
  MERERUN_VEC void fetch_next(int i) const {
    if (next != nullptr) __builtin_prefetch(next + i * view.row_stride, 0, 2);
  }
};

/// For every state row i, accumulator i mod 16 takes fma(state(i), x[i], acc); returns the joined
/// accumulators (tree T of docs/exactness.md).
template <typename State>
MERERUN_VEC FN sweep_state(int rows, const float* x, State state) {
  FN quads[4];
  for (int half = 0; half < numerics::kDeltaLanes / kDeltaSums; ++half) {
    FN acc[kDeltaSums];
    for (int j = 0; j < kDeltaSums; ++j) acc[j] = splat<FN>(0.0f);
    for (int i = half * kDeltaSums; i < rows; i += numerics::kDeltaLanes) {
      unrolled<kDeltaSums>([&](auto index) __attribute__((always_inline)) {
        constexpr int j = decltype(index)::value;
        acc[j] = fma(state(i + j), splat<FN>(x[i + j]), acc[j]);
      });
    }
    for (int j = 0; j < kDeltaSums; j += 4) {
      quads[(half * kDeltaSums + j) / 4] = add(add(acc[j], acc[j + 1]), add(acc[j + 2], acc[j + 3]));
    }
  }
  return add(add(quads[0], quads[1]), add(quads[2], quads[3]));
}

/// Calls f(head, columns) for every vector of columns of the column blocks [begin, end).
template <typename F>
MERERUN_VEC void for_columns(const DeltaShape& shape, const TensorView& state, int begin, int end, F&& f) {
  const int blocks = (shape.value_dim + kPanelRows - 1) / kPanelRows;
  for (int item = begin; item < end; ++item) {
    const int head = item / blocks;
    const int first = item % blocks * kPanelRows;
    const int last = smaller(first + kPanelRows, shape.value_dim);
    const int after = item + 1;
    float* next = after == end
                      ? nullptr
                      : line<float>(state, after / blocks * shape.key_dim) + after % blocks * kPanelRows;
    for (int c = first; c < last; c += kLanes) {
      f(head, DeltaColumns{state, head * shape.key_dim, shape.key_dim, c, smaller(kLanes, last - c), next});
    }
  }
}

/// One row of the delta rule on one vector of columns; `scratch` [key_dim][kLanes] holds the state between
/// rows: the first row finds it in the cache, the last leaves it there if asked to.
template <bool kFirst, bool kLast>
MERERUN_VEC void step_columns(const DeltaStepParams& p, int t, int head, const DeltaColumns& columns,
                              float* scratch) {
  const DeltaShape& shape = p.shape;
  const int per_key = shape.value_heads / shape.key_heads;
  const std::int64_t key_first = static_cast<std::int64_t>(head / per_key) * shape.key_dim;
  const std::int64_t value_first = static_cast<std::int64_t>(head) * shape.value_dim + columns.first_column;
  const float* q = line<const float>(p.q, t) + key_first;
  const float* k = line<const float>(p.k, t) + key_first;
  const FN v = load_some(line<const float>(p.v, t) + value_first, columns.count);
  const FN alpha = splat<FN>(line<const float>(p.alpha, t)[head]);
  const FN beta = splat<FN>(line<const float>(p.beta, t)[head]);
  const FN read = sweep_state(
      shape.key_dim, k, [&](int i) __attribute__((always_inline)) {
        const FN s = mul(alpha, kFirst ? columns.read(i) : load<FN>(scratch + i * kLanes));
        store(scratch + i * kLanes, s);
        return s;
      });
  const FN u = mul(beta, sub(v, read));
  const bool writes = kLast && p.write == StateWrite::kStore;
  const FN out = sweep_state(
      shape.key_dim, q, [&](int i) __attribute__((always_inline)) {
        if (kLast) columns.fetch_next(i);
        const FN s = fma(u, splat<FN>(k[i]), load<FN>(scratch + i * kLanes));
        if (writes) columns.write(i, s);
        if (!kLast) store(scratch + i * kLanes, s);
        return s;
      });
  store_some(line<float>(p.out, t) + value_first, out, columns.count);
  if (!p.u.empty()) store_some(line<float>(p.u, t) + value_first, u, columns.count);
}

void delta_step(const DeltaStepParams& p, int begin, int end, WorkerScratch worker) {
  auto* scratch = reinterpret_cast<float*>(worker.data);
  for_columns(p.shape, p.state, begin, end, [&](int head, const DeltaColumns& columns) {
    const int last = p.q.rows - 1;
    if (last == 0) return step_columns<true, true>(p, 0, head, columns, scratch);
    step_columns<true, false>(p, 0, head, columns, scratch);
    for (int t = 1; t < last; ++t) step_columns<false, false>(p, t, head, columns, scratch);
    step_columns<false, true>(p, last, head, columns, scratch);
  });
}

void delta_replay(const DeltaReplayParams& p, int begin, int end) {
  const DeltaShape& shape = p.shape;
  const int per_key = shape.value_heads / shape.key_heads;
  for_columns(shape, p.state, begin, end, [&](int head, const DeltaColumns& columns) {
    const std::int64_t key_first = static_cast<std::int64_t>(head / per_key) * shape.key_dim;
    const std::int64_t value_first = static_cast<std::int64_t>(head) * shape.value_dim + columns.first_column;
    // Some state rows at a time stay in registers for all replayed rows.
    for (int first = 0; first < shape.key_dim; first += kDeltaSums) {
      FN s[kDeltaSums];
      for (int j = 0; j < kDeltaSums; ++j) {
        columns.fetch_next(first + j);
        s[j] = columns.read(first + j);
      }
      for (int t = 0; t < p.k.rows; ++t) {
        const float* k = line<const float>(p.k, t) + key_first + first;
        const FN u = load_some(line<const float>(p.u, t) + value_first, columns.count);
        const FN alpha = splat<FN>(line<const float>(p.alpha, t)[head]);
        for (int j = 0; j < kDeltaSums; ++j) s[j] = fma(u, splat<FN>(k[j]), mul(alpha, s[j]));
      }
      for (int j = 0; j < kDeltaSums; ++j) columns.write(first + j, s[j]);
    }
  });
}
