#pragma once

// The gated delta rule: one vector of state columns at a time, held in the first-level cache for all rows.

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

/// kLanes columns of one head's state, [key_dim][kLanes] in scratch.
struct DeltaColumns {
  TensorView view;
  int first_row, rows;      // of the head
  int first_column, count;  // count <= kLanes exist
  float* state;

  MERERUN_VEC void read() const {
    for (int i = 0; i < rows; ++i) {
      const float* from = line<const float>(view, first_row + i) + first_column;
      if (count == kLanes) {
        store(state + i * kLanes, load<FN>(from));
      } else {
        for (int c = 0; c < kLanes; ++c) state[i * kLanes + c] = c < count ? from[c] : 0.0f;
      }
    }
  }
  MERERUN_VEC void write() const {
    for (int i = 0; i < rows; ++i) {
      float* to = line<float>(view, first_row + i) + first_column;
      if (count == kLanes) {
        store(to, load<FN>(state + i * kLanes));
      } else {
        for (int c = 0; c < count; ++c) to[c] = state[i * kLanes + c];
      }
    }
  }
};

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

/// For every state row i, S = change(S, i) is stored and accumulator i mod 16 takes fma(S, x[i], acc);
/// returns the joined accumulators (tree T of docs/exactness.md).
template <typename Change>
MERERUN_VEC FN sweep_state(float* state, int rows, const float* x, Change change) {
  FN quads[4];
  for (int half = 0; half < numerics::kDeltaLanes / kDeltaSums; ++half) {
    FN acc[kDeltaSums];
    for (int j = 0; j < kDeltaSums; ++j) acc[j] = splat<FN>(0.0f);
    for (int i = half * kDeltaSums; i < rows; i += numerics::kDeltaLanes) {
      unrolled<kDeltaSums>([&](auto index) __attribute__((always_inline)) {
        constexpr int j = decltype(index)::value;
        float* at = state + (i + j) * kLanes;
        const FN s = change(load<FN>(at), i + j);
        store(at, s);
        acc[j] = fma(s, splat<FN>(x[i + j]), acc[j]);
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
MERERUN_VEC void for_columns(const DeltaShape& shape, const TensorView& state, int begin, int end,
                             float* scratch, F&& f) {
  const int blocks = (shape.value_dim + kPanelRows - 1) / kPanelRows;
  for (int item = begin; item < end; ++item) {
    const int head = item / blocks;
    const int first = item % blocks * kPanelRows;
    const int last = smaller(first + kPanelRows, shape.value_dim);
    for (int c = first; c < last; c += kLanes) {
      f(head,
        DeltaColumns{state, head * shape.key_dim, shape.key_dim, c, smaller(kLanes, last - c), scratch});
    }
  }
}

void delta_step(const DeltaStepParams& p, int begin, int end, WorkerScratch scratch) {
  const DeltaShape& shape = p.shape;
  const int per_key = shape.value_heads / shape.key_heads;
  for_columns(shape, p.state, begin, end, reinterpret_cast<float*>(scratch.data),
              [&](int head, const DeltaColumns& columns) {
                columns.read();
                const std::int64_t key_first = static_cast<std::int64_t>(head / per_key) * shape.key_dim;
                const std::int64_t value_first =
                    static_cast<std::int64_t>(head) * shape.value_dim + columns.first_column;
                for (int t = 0; t < p.q.rows; ++t) {
                  const float* q = line<const float>(p.q, t) + key_first;
                  const float* k = line<const float>(p.k, t) + key_first;
                  const FN v = load_some(line<const float>(p.v, t) + value_first, columns.count);
                  const FN alpha = splat<FN>(line<const float>(p.alpha, t)[head]);
                  const FN beta = splat<FN>(line<const float>(p.beta, t)[head]);
                  const FN read =
                      sweep_state(columns.state, shape.key_dim, k, [&](FN s, int) { return mul(alpha, s); });
                  const FN u = mul(beta, sub(v, read));
                  const FN out = sweep_state(columns.state, shape.key_dim, q,
                                             [&](FN s, int i) { return fma(u, splat<FN>(k[i]), s); });
                  store_some(line<float>(p.out, t) + value_first, out, columns.count);
                  if (!p.u.empty()) store_some(line<float>(p.u, t) + value_first, u, columns.count);
                }
                if (p.write == StateWrite::kStore) columns.write();
              });
}

void delta_replay(const DeltaReplayParams& p, int begin, int end, WorkerScratch scratch) {
  const DeltaShape& shape = p.shape;
  const int per_key = shape.value_heads / shape.key_heads;
  for_columns(shape, p.state, begin, end, reinterpret_cast<float*>(scratch.data),
              [&](int head, const DeltaColumns& columns) {
                columns.read();
                const std::int64_t key_first = static_cast<std::int64_t>(head / per_key) * shape.key_dim;
                const std::int64_t value_first =
                    static_cast<std::int64_t>(head) * shape.value_dim + columns.first_column;
                // Some state rows at a time stay in registers for all replayed rows.
                for (int first = 0; first < shape.key_dim; first += kDeltaSums) {
                  FN s[kDeltaSums];
                  for (int j = 0; j < kDeltaSums; ++j) s[j] = load<FN>(columns.state + (first + j) * kLanes);
                  for (int t = 0; t < p.k.rows; ++t) {
                    const float* k = line<const float>(p.k, t) + key_first + first;
                    const FN u = load_some(line<const float>(p.u, t) + value_first, columns.count);
                    const FN alpha = splat<FN>(line<const float>(p.alpha, t)[head]);
                    for (int j = 0; j < kDeltaSums; ++j) s[j] = fma(u, splat<FN>(k[j]), mul(alpha, s[j]));
                  }
                  for (int j = 0; j < kDeltaSums; ++j) store(columns.state + (first + j) * kLanes, s[j]);
                }
                columns.write();
              });
}
