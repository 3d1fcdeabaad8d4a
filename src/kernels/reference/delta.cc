#include "kernels/delta.h"

#include "kernels/numerics.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

/// Convolution and SiLU of row t over all channels.
void convolve_row(const DeltaPrepareParams& p, int t, float* out) {
  const int taps = p.shape.conv_taps;
  const int channels = p.shape.conv_channels();
  for (int c = 0; c < channels; ++c) out[c] = 0;
  for (int j = 0; j < taps; ++j) {
    const int source = t - taps + 1 + j;  // row of `inputs`; negative: in the window
    const float* x = source >= 0 ? p.inputs.row<float>(source) : p.window.row<float>(source + taps - 1);
    const float* w = p.conv_weight.row<float>(j);
    for (int c = 0; c < channels; ++c) out[c] = nm::fma_f32(w[c], x[c], out[c]);
  }
  for (int c = 0; c < channels; ++c) out[c] = nm::silu_f32(out[c]);
}

float inverse_norm(const float* x, int n) { return nm::rsqrt_f32(nm::sum_of_squares(x, n) + nm::kL2NormEps); }

void delta_prepare(const DeltaPrepareParams& p, const Scratch& scratch) {
  const DeltaShape& s = p.shape;
  const float query_scale = nm::inverse_root(s.key_dim);
  const float* a_log = p.a_log.row<float>(0);
  const float* dt_bias = p.dt_bias.row<float>(0);
  float* mixed = scratch.values;  // q | k | v
  for (int t = 0; t < p.inputs.rows; ++t) {
    convolve_row(p, t, mixed);
    for (int h = 0; h < s.key_heads; ++h) {
      const float* q_in = mixed + h * s.key_dim;
      const float* k_in = mixed + s.key_width() + h * s.key_dim;
      float* q = p.q.row<float>(t) + h * s.key_dim;
      float* k = p.k.row<float>(t) + h * s.key_dim;
      const float q_norm = inverse_norm(q_in, s.key_dim);
      const float k_norm = inverse_norm(k_in, s.key_dim);
      for (int i = 0; i < s.key_dim; ++i) {
        q[i] = (q_in[i] * q_norm) * query_scale;
        k[i] = k_in[i] * k_norm;
      }
    }
    const float* v_in = mixed + 2 * s.key_width();
    for (int i = 0; i < s.value_width(); ++i) p.v.row<float>(t)[i] = v_in[i];
    for (int h = 0; h < s.value_heads; ++h) {
      p.alpha.row<float>(t)[h] = nm::delta_decay(a_log[h], p.a.row<float>(t)[h], dt_bias[h]);
      p.beta.row<float>(t)[h] = nm::sigmoid_f32(p.b.row<float>(t)[h]);
    }
  }
}

/// out[c] = sum over i of state[i][c] * x[i]: element i goes to accumulator i mod 16, then the fixed join.
/// `lanes` holds 16 * columns values.
void read_state(const float* state, const float* x, int rows, int columns, float* lanes, float* out) {
  for (int i = 0; i < nm::kDeltaLanes * columns; ++i) lanes[i] = 0;
  for (int i = 0; i < rows; ++i) {
    float* acc = lanes + (i % nm::kDeltaLanes) * columns;
    for (int c = 0; c < columns; ++c) acc[c] = nm::fma_f32(state[i * columns + c], x[i], acc[c]);
  }
  for (int c = 0; c < columns; ++c) {
    float partial[nm::kDeltaLanes];
    for (int j = 0; j < nm::kDeltaLanes; ++j) partial[j] = lanes[j * columns + c];
    out[c] = nm::join16(partial);
  }
}

void decay_state(float* state, float alpha, int count) {
  for (int i = 0; i < count; ++i) state[i] = alpha * state[i];
}

/// S = fma(u, k, S).
void write_state(float* state, const float* k, const float* u, int rows, int columns) {
  for (int i = 0; i < rows; ++i) {
    for (int c = 0; c < columns; ++c) {
      state[i * columns + c] = nm::fma_f32(u[c], k[i], state[i * columns + c]);
    }
  }
}

void load_state(TensorView state, int first_row, int rows, float* to) {
  for (int i = 0; i < rows; ++i) {
    const float* from = state.row<float>(first_row + i);
    for (int c = 0; c < state.cols; ++c) to[i * state.cols + c] = from[c];
  }
}

void store_state(const float* from, TensorView state, int first_row, int rows) {
  for (int i = 0; i < rows; ++i) {
    float* to = state.row<float>(first_row + i);
    for (int c = 0; c < state.cols; ++c) to[c] = from[i * state.cols + c];
  }
}

void step_head(const DeltaStepParams& p, int head, const Scratch& scratch) {
  const int rows = p.shape.key_dim;
  const int columns = p.shape.value_dim;
  const int key_head = head / (p.shape.value_heads / p.shape.key_heads);
  float* state = scratch.values;
  float* lanes = state + rows * columns;
  float* read = lanes + nm::kDeltaLanes * columns;
  float* u = read + columns;
  load_state(p.state, head * rows, rows, state);
  for (int t = 0; t < p.q.rows; ++t) {
    const float* q = p.q.row<float>(t) + key_head * rows;
    const float* k = p.k.row<float>(t) + key_head * rows;
    const float* v = p.v.row<float>(t) + head * columns;
    const float beta = p.beta.row<float>(t)[head];
    decay_state(state, p.alpha.row<float>(t)[head], rows * columns);
    read_state(state, k, rows, columns, lanes, read);
    for (int c = 0; c < columns; ++c) u[c] = beta * (v[c] - read[c]);
    write_state(state, k, u, rows, columns);
    read_state(state, q, rows, columns, lanes, p.out.row<float>(t) + head * columns);
    if (!p.u.empty()) {
      for (int c = 0; c < columns; ++c) p.u.row<float>(t)[head * columns + c] = u[c];
    }
  }
  if (p.write == StateWrite::kStore) store_state(state, p.state, head * rows, rows);
}

void delta_step(const DeltaStepParams& p, const Scratch& scratch) {
  for (int head = 0; head < p.shape.value_heads; ++head) step_head(p, head, scratch);
}

void delta_replay(const DeltaReplayParams& p) {
  const int rows = p.shape.key_dim;
  const int columns = p.shape.value_dim;
  for (int head = 0; head < p.shape.value_heads; ++head) {
    const int key_head = head / (p.shape.value_heads / p.shape.key_heads);
    for (int t = 0; t < p.k.rows; ++t) {
      const float* k = p.k.row<float>(t) + key_head * rows;
      const float* u = p.u.row<float>(t) + head * columns;
      for (int i = 0; i < rows; ++i) {
        float* state = p.state.row<float>(head * rows + i);
        decay_state(state, p.alpha.row<float>(t)[head], columns);
        write_state(state, k + i, u, 1, columns);
      }
    }
  }
}

void advance_window(const AdvanceWindowParams& p) {
  // Ascending, so that a window row is read before it is overwritten.
  for (int i = 0; i < p.window.rows; ++i) {
    const int source = i + p.inputs.rows - p.window.rows;  // row of `inputs`; negative: in the old window
    const float* from =
        source >= 0 ? p.inputs.row<float>(source) : p.window.row<float>(source + p.window.rows);
    float* to = p.window.row<float>(i);
    for (int c = 0; c < p.window.cols; ++c) to[c] = from[c];
  }
}

}  // namespace

void bind_delta(Loops& loops) {
  loops.delta_prepare = delta_prepare;
  loops.delta_step = delta_step;
  loops.delta_replay = delta_replay;
  loops.advance_window = advance_window;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
