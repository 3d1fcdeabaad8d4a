#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/numerics.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/delta_data.h"
#include "tests/kernels/op_data.h"

namespace mererun {
namespace {

constexpr DeltaShape kShape{.key_heads = 2, .value_heads = 6, .key_dim = 32, .value_dim = 24, .conv_taps = 4};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// What delta_prepare writes.
struct Prepared {
  std::vector<float> q, k, v, alpha, beta;

  void append(const Prepared& next) {
    q.insert(q.end(), next.q.begin(), next.q.end());
    k.insert(k.end(), next.k.begin(), next.k.end());
    v.insert(v.end(), next.v.begin(), next.v.end());
    alpha.insert(alpha.end(), next.alpha.begin(), next.alpha.end());
    beta.insert(beta.end(), next.beta.begin(), next.beta.end());
  }
  Prepared rows(const DeltaShape& s, int first, int count) const {
    return {rows_of(q, s.key_width(), first, count), rows_of(k, s.key_width(), first, count),
            rows_of(v, s.value_width(), first, count), rows_of(alpha, s.value_heads, first, count),
            rows_of(beta, s.value_heads, first, count)};
  }
};

void expect_same(const Prepared& got, const Prepared& expected) {
  expect_same_bits(got.q, expected.q);
  expect_same_bits(got.k, expected.k);
  expect_same_bits(got.v, expected.v);
  expect_same_bits(got.alpha, expected.alpha);
  expect_same_bits(got.beta, expected.beta);
}

/// Rows [first, first + count) of the inputs after the given window.
Prepared prepare(Ops& ops, const DeltaRows& x, int first, int count, const std::vector<float>& window) {
  const PrepareMatrices m(ops, x, first, count, window);
  ops.delta_prepare(m.params());
  return {m.q.values(), m.k.values(), m.v.values(), m.alpha.values(), m.beta.values()};
}

std::vector<float> advance(Ops& ops, const std::vector<float>& window, const std::vector<float>& inputs,
                           int cols) {
  Floats w(ops, static_cast<int>(window.size()) / cols, cols, window);
  Floats x(ops, static_cast<int>(inputs.size()) / cols, cols, inputs);
  ops.advance_window({w.view(), x.view()});
  return w.values();
}

struct Stepped {
  std::vector<float> out, u, state;
};

Stepped step(Ops& ops, const DeltaShape& s, const Prepared& x, const std::vector<float>& state,
             StateWrite write = StateWrite::kStore) {
  const int rows = static_cast<int>(x.alpha.size()) / s.value_heads;
  Floats q(ops, rows, s.key_width(), x.q), k(ops, rows, s.key_width(), x.k),
      v(ops, rows, s.value_width(), x.v);
  Floats alpha(ops, rows, s.value_heads, x.alpha), beta(ops, rows, s.value_heads, x.beta);
  Floats st(ops, s.value_heads * s.key_dim, s.value_dim, state);
  Floats u(ops, rows, s.value_width()), out(ops, rows, s.value_width());
  ops.delta_step({.shape = s,
                  .q = q.view(),
                  .k = k.view(),
                  .v = v.view(),
                  .alpha = alpha.view(),
                  .beta = beta.view(),
                  .state = st.view(),
                  .write = write,
                  .u = u.view(),
                  .out = out.view()});
  return {out.values(), u.values(), st.values()};
}

std::vector<float> replay(Ops& ops, const DeltaShape& s, const Prepared& x, const std::vector<float>& u,
                          const std::vector<float>& state) {
  const int rows = static_cast<int>(x.alpha.size()) / s.value_heads;
  Floats k(ops, rows, s.key_width(), x.k), logged(ops, rows, s.value_width(), u);
  Floats alpha(ops, rows, s.value_heads, x.alpha), st(ops, s.value_heads * s.key_dim, s.value_dim, state);
  ops.delta_replay({s, k.view(), logged.view(), alpha.view(), st.view()});
  return st.values();
}

class DeltaTest : public OpTest {};

TEST_P(DeltaTest, WorkedStepByHand) {
  // Two dims of 16 in use: S = I, alpha = beta = 0.5, k = (0.6, 0.8), v = (1, 2), q = (1, 0).
  constexpr DeltaShape s{.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 2, .conv_taps = 4};
  Prepared x{std::vector<float>(16, 0.0f), std::vector<float>(16, 0.0f), {1, 2}, {0.5f}, {0.5f}};
  x.q[0] = 1;
  x.k[0] = 0.6f;
  x.k[1] = 0.8f;
  std::vector<float> state(32, 0.0f);
  state[0] = state[3] = 1;
  const Stepped got = step(*ops_, s, x, state);
  EXPECT_NEAR(got.u[0], 0.35, 1e-7);
  EXPECT_NEAR(got.u[1], 0.8, 1e-7);
  const std::vector<double> expected = {0.71, 0.48, 0.28, 1.14};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got.state[i], expected[i], 2e-7);
  for (std::size_t i = 4; i < 32; ++i) EXPECT_EQ(got.state[i], 0.0f);
  EXPECT_NEAR(got.out[0], 0.71, 1e-7);
  EXPECT_NEAR(got.out[1], 0.48, 1e-7);
}

TEST_P(DeltaTest, SumsInSixteenLanes) {
  // S·q with S = 1: elements 5 and 21 share a lane and are lost in it one by one; 1 and 2 meet first and
  // survive.
  constexpr DeltaShape s{.key_heads = 1, .value_heads = 1, .key_dim = 32, .value_dim = 1, .conv_taps = 1};
  Prepared x{std::vector<float>(32, 0.0f), std::vector<float>(32, 0.0f), {0}, {1}, {0}};
  const std::vector<float> state(32, 1.0f);
  x.q[0] = 0x1p24f;
  x.q[16] = 1;  // lane 0: lost
  EXPECT_EQ(step(*ops_, s, x, state).out[0], 0x1p24f);
  x.q[16] = 0;
  x.q[2] = x.q[3] = 1;  // a2 + a3 = 2 survives
  EXPECT_EQ(step(*ops_, s, x, state).out[0], 0x1p24f + 2);
  x.q[2] = x.q[3] = 0;
  x.q[8] = x.q[12] = 1;  // L2 + L3 = 2 survives
  EXPECT_EQ(step(*ops_, s, x, state).out[0], 0x1p24f + 2);
  x.q[8] = x.q[12] = 0;
  x.q[4] = x.q[8] = 1;  // L0 + L1 loses one, (L2 + L3) = 1 the other
  EXPECT_EQ(step(*ops_, s, x, state).out[0], 0x1p24f);
}

TEST_P(DeltaTest, PrepareAgreesWithTheFormulas) {
  const DeltaRows x = make_delta_rows(kShape, 6, 1);
  const Prepared got = prepare(*ops_, x, 0, 6, x.window);
  const int c = kShape.conv_channels();
  std::vector<double> q, k, v, alpha, beta;
  for (int t = 0; t < 6; ++t) {
    std::vector<double> mixed;
    for (int ch = 0; ch < c; ++ch) {
      double sum = 0;
      for (int j = 0; j < 4; ++j) {
        const int from = t - 3 + j;
        const double value = from < 0 ? x.window[size(from + 3, c) + static_cast<std::size_t>(ch)]
                                      : x.inputs[size(from, c) + static_cast<std::size_t>(ch)];
        sum += x.conv_weight[size(j, c) + static_cast<std::size_t>(ch)] * value;
      }
      mixed.push_back(sum / (1 + std::exp(-sum)));
    }
    for (int part = 0; part < 2; ++part) {
      for (int h = 0; h < kShape.key_heads; ++h) {
        const double* head = mixed.data() + part * kShape.key_width() + h * kShape.key_dim;
        double sum = 1e-6;
        for (int i = 0; i < kShape.key_dim; ++i) sum += head[i] * head[i];
        for (int i = 0; i < kShape.key_dim; ++i) {
          (part == 0 ? q : k).push_back(head[i] / std::sqrt(sum * (part == 0 ? kShape.key_dim : 1)));
        }
      }
    }
    v.insert(v.end(), mixed.begin() + 2 * kShape.key_width(), mixed.end());
    for (int h = 0; h < kShape.value_heads; ++h) {
      const auto at = size(t, kShape.value_heads) + static_cast<std::size_t>(h);
      const auto head = static_cast<std::size_t>(h);
      const double softplus = std::log1p(std::exp(static_cast<double>(x.a[at]) + x.dt_bias[head]));
      alpha.push_back(std::exp(-std::exp(static_cast<double>(x.a_log[head])) * softplus));
      beta.push_back(1 / (1 + std::exp(-static_cast<double>(x.b[at]))));
    }
  }
  EXPECT_LT(relative_error(got.q, q), 5e-7);
  EXPECT_LT(relative_error(got.k, k), 5e-7);
  EXPECT_LT(relative_error(got.v, v), 5e-7);
  EXPECT_LT(relative_error(got.alpha, alpha), 5e-7);
  EXPECT_LT(relative_error(got.beta, beta), 2e-7);
  expect_same(got, prepare(*definition_, x, 0, 6, x.window));
}

TEST_P(DeltaTest, ConvolutionTakesTheOldestTapFirst) {
  // One channel group of taps 2^24, 1, 1: oldest first loses both ones, newest first would keep them.
  constexpr DeltaShape s{.key_heads = 1, .value_heads = 1, .key_dim = 16, .value_dim = 1, .conv_taps = 3};
  DeltaRows x = make_delta_rows(s, 1, 2);
  const auto v = static_cast<std::size_t>(2 * s.key_width());
  const auto c = static_cast<std::size_t>(s.conv_channels());
  x.inputs[v] = x.window[v] = x.window[c + v] = 1;
  x.conv_weight[v] = 0x1p24f;
  x.conv_weight[c + v] = x.conv_weight[2 * c + v] = 1;
  EXPECT_EQ(prepare(*ops_, x, 0, 1, x.window).v[0], 0x1p24f);
}

TEST_P(DeltaTest, ChunksEqualTheWhole) {
  constexpr int kRows = 11;
  const DeltaRows x = make_delta_rows(kShape, kRows, 3);
  const int c = kShape.conv_channels();
  Numbers numbers(4);
  const std::vector<float> start =
      numbers.normals(size(kShape.value_heads * kShape.key_dim, kShape.value_dim), 0.1f);
  const Prepared whole = prepare(*ops_, x, 0, kRows, x.window);
  const Stepped whole_step = step(*ops_, kShape, whole, start);
  for (const std::vector<int>& chunks :
       std::vector<std::vector<int>>{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 9}, {5, 1, 5}, {10, 1}}) {
    std::vector<float> window = x.window, state = start, out, u;
    Prepared pieces;
    int first = 0;
    for (int count : chunks) {
      const Prepared piece = prepare(*ops_, x, first, count, window);
      window = advance(*ops_, window, rows_of(x.inputs, c, first, count), c);
      const Stepped stepped = step(*ops_, kShape, piece, state);
      state = stepped.state;
      out.insert(out.end(), stepped.out.begin(), stepped.out.end());
      u.insert(u.end(), stepped.u.begin(), stepped.u.end());
      pieces.append(piece);
      first += count;
    }
    expect_same(pieces, whole);
    expect_same_bits(state, whole_step.state);
    expect_same_bits(out, whole_step.out);
    expect_same_bits(u, whole_step.u);
    expect_same_bits(window, rows_of(x.inputs, c, kRows - 3, 3));
  }
}

TEST_P(DeltaTest, WindowKeepsTheLastRows) {
  const std::vector<float> window = {1, 10, 2, 20, 3, 30};
  expect_same_bits(advance(*ops_, window, {}, 2), window);
  expect_same_bits(advance(*ops_, window, {4, 40}, 2), {2, 20, 3, 30, 4, 40});
  expect_same_bits(advance(*ops_, window, {4, 40, 5, 50}, 2), {3, 30, 4, 40, 5, 50});
  expect_same_bits(advance(*ops_, window, {4, 40, 5, 50, 6, 60, 7, 70}, 2), {5, 50, 6, 60, 7, 70});
}

TEST_P(DeltaTest, StepAgreesWithTheRecurrenceInDouble) {
  constexpr int kRows = 40;
  const DeltaRows inputs = make_delta_rows(kShape, kRows, 5);
  const Prepared x = prepare(*ops_, inputs, 0, kRows, inputs.window);
  const std::size_t state_size = size(kShape.value_heads * kShape.key_dim, kShape.value_dim);
  const Stepped got = step(*ops_, kShape, x, std::vector<float>(state_size, 0.0f));
  std::vector<double> s(state_size, 0.0), out;
  for (int t = 0; t < kRows; ++t) {
    for (int h = 0; h < kShape.value_heads; ++h) {
      const float* k = x.k.data() + t * kShape.key_width() + h / 3 * kShape.key_dim;
      const float* q = x.q.data() + t * kShape.key_width() + h / 3 * kShape.key_dim;
      for (int c = 0; c < kShape.value_dim; ++c) {
        const auto at = [&](int i) -> double& {
          return s[size(h * kShape.key_dim + i, kShape.value_dim) + static_cast<std::size_t>(c)];
        };
        double m = 0, o = 0;
        for (int i = 0; i < kShape.key_dim; ++i) {
          at(i) *= x.alpha[size(t, kShape.value_heads) + static_cast<std::size_t>(h)];
          m += at(i) * k[i];
        }
        const double v =
            x.v[size(t, kShape.value_width()) + static_cast<std::size_t>(h * kShape.value_dim + c)];
        const double u = x.beta[size(t, kShape.value_heads) + static_cast<std::size_t>(h)] * (v - m);
        for (int i = 0; i < kShape.key_dim; ++i) {
          at(i) += u * k[i];
          o += at(i) * q[i];
        }
        out.push_back(o);
      }
    }
  }
  EXPECT_LT(relative_error(got.out, out), 1e-6);
  EXPECT_LT(relative_error(got.state, s), 1e-6);
  const Stepped defined = step(*definition_, kShape, x, std::vector<float>(state_size, 0.0f));
  expect_same_bits(got.out, defined.out);
  expect_same_bits(got.u, defined.u);
  expect_same_bits(got.state, defined.state);
}

/// S · x of one head in the contract's order, for column c.
float sum_in_lanes(const std::vector<float>& column, const float* x) {
  std::vector<float> a(16, 0.0f);
  for (std::size_t i = 0; i < column.size(); ++i) a[i % 16] = std::fma(column[i], x[i], a[i % 16]);
  std::vector<float> lines;
  for (std::size_t i = 0; i < 16; i += 4) lines.push_back((a[i] + a[i + 1]) + (a[i + 2] + a[i + 3]));
  return (lines[0] + lines[1]) + (lines[2] + lines[3]);
}

TEST_P(DeltaTest, StepFollowsTheContractBitForBit) {
  constexpr int kRows = 5;
  const DeltaRows inputs = make_delta_rows(kShape, kRows, 10);
  const Prepared x = prepare(*ops_, inputs, 0, kRows, inputs.window);
  Numbers numbers(11);
  const std::vector<float> start =
      numbers.normals(size(kShape.value_heads * kShape.key_dim, kShape.value_dim), 0.1f);
  std::vector<float> state = start, out(size(kRows, kShape.value_width())), u(out.size());
  for (int h = 0; h < kShape.value_heads; ++h) {
    for (int c = 0; c < kShape.value_dim; ++c) {
      const auto at = [&](int i) -> float& {
        return state[size(h * kShape.key_dim + i, kShape.value_dim) + static_cast<std::size_t>(c)];
      };
      std::vector<float> column;
      for (int i = 0; i < kShape.key_dim; ++i) column.push_back(at(i));
      for (int t = 0; t < kRows; ++t) {
        const float* q = x.q.data() + t * kShape.key_width() + h / 3 * kShape.key_dim;
        const float* k = x.k.data() + t * kShape.key_width() + h / 3 * kShape.key_dim;
        const auto head = size(t, kShape.value_heads) + static_cast<std::size_t>(h);
        const auto place = size(t, kShape.value_width()) + static_cast<std::size_t>(h * kShape.value_dim + c);
        for (float& s : column) s = x.alpha[head] * s;
        u[place] = x.beta[head] * (x.v[place] - sum_in_lanes(column, k));
        for (std::size_t i = 0; i < column.size(); ++i) column[i] = std::fma(u[place], k[i], column[i]);
        out[place] = sum_in_lanes(column, q);
      }
      for (int i = 0; i < kShape.key_dim; ++i) at(i) = column[static_cast<std::size_t>(i)];
    }
  }
  const Stepped got = step(*ops_, kShape, x, start);
  expect_same_bits(got.u, u);
  expect_same_bits(got.out, out);
  expect_same_bits(got.state, state);
}

TEST_P(DeltaTest, PrepareFollowsTheContractBitForBit) {
  const DeltaRows x = make_delta_rows(kShape, 5, 12);
  const Prepared got = prepare(*ops_, x, 0, 5, x.window);
  const int c = kShape.conv_channels();
  std::vector<float> past = x.window;
  past.insert(past.end(), x.inputs.begin(), x.inputs.end());
  Prepared expected;
  for (int t = 0; t < 5; ++t) {
    std::vector<float> mixed;
    for (std::size_t ch = 0; ch < static_cast<std::size_t>(c); ++ch) {
      float acc = 0;
      for (int j = 0; j < 4; ++j)
        acc = std::fma(x.conv_weight[size(j, c) + ch], past[size(t + j, c) + ch], acc);
      mixed.push_back(acc * numerics::sigmoid_f32(acc));
    }
    for (int part = 0; part < 2; ++part) {
      for (int h = 0; h < kShape.key_heads; ++h) {
        const float* head = mixed.data() + part * kShape.key_width() + h * kShape.key_dim;
        const float r = 1.0f / std::sqrt(numerics::sum_of_squares(head, kShape.key_dim) + 1e-6f);
        for (int i = 0; i < kShape.key_dim; ++i) {
          if (part == 0) expected.q.push_back(head[i] * r * static_cast<float>(1 / std::sqrt(32.0)));
          if (part == 1) expected.k.push_back(head[i] * r);
        }
      }
    }
    expected.v.insert(expected.v.end(), mixed.begin() + 2 * kShape.key_width(), mixed.end());
    for (std::size_t h = 0; h < static_cast<std::size_t>(kShape.value_heads); ++h) {
      const std::size_t at = size(t, kShape.value_heads) + h;
      const float step = numerics::softplus_f32(x.a[at] + x.dt_bias[h]);
      expected.alpha.push_back(numerics::exp_f32(-numerics::exp_f32(x.a_log[h]) * step));
      expected.beta.push_back(numerics::sigmoid_f32(x.b[at]));
    }
  }
  expect_same(got, expected);
}

TEST_P(DeltaTest, VerificationLeavesTheStateAndReplayRestoresAnyPrefix) {
  constexpr int kWidth = 9;
  const DeltaRows inputs = make_delta_rows(kShape, kWidth, 6);
  Numbers numbers(7);
  const std::vector<float> start =
      numbers.normals(size(kShape.value_heads * kShape.key_dim, kShape.value_dim), 0.1f);
  const Prepared x = prepare(*ops_, inputs, 0, kWidth, inputs.window);
  const Stepped verified = step(*ops_, kShape, x, start, StateWrite::kKeep);
  expect_same_bits(verified.state, start);
  for (int accepted = 0; accepted <= kWidth; ++accepted) {
    SCOPED_TRACE(accepted);
    const Prepared prefix = x.rows(kShape, 0, accepted);
    const std::vector<float> u = rows_of(verified.u, kShape.value_width(), 0, accepted);
    const std::vector<float> replayed = replay(*ops_, kShape, prefix, u, start);
    const Stepped serial = step(*ops_, kShape, prefix, start);
    expect_same_bits(replayed, serial.state);
    expect_same_bits(serial.out, rows_of(verified.out, kShape.value_width(), 0, accepted));
    expect_same_bits(replayed, replay(*definition_, kShape, prefix, u, start));
  }
}

TEST_P(DeltaTest, StepWorksWithoutALog) {
  const DeltaRows inputs = make_delta_rows(kShape, 2, 8);
  const Prepared x = prepare(*ops_, inputs, 0, 2, inputs.window);
  const DeltaShape& s = kShape;
  const std::vector<float> start(size(s.value_heads * s.key_dim, s.value_dim), 0.25f);
  Floats q(*ops_, 2, s.key_width(), x.q), k(*ops_, 2, s.key_width(), x.k), v(*ops_, 2, s.value_width(), x.v);
  Floats alpha(*ops_, 2, s.value_heads, x.alpha), beta(*ops_, 2, s.value_heads, x.beta);
  Floats state(*ops_, s.value_heads * s.key_dim, s.value_dim, start), out(*ops_, 2, s.value_width());
  ops_->delta_step({.shape = s,
                    .q = q.view(),
                    .k = k.view(),
                    .v = v.view(),
                    .alpha = alpha.view(),
                    .beta = beta.view(),
                    .state = state.view(),
                    .write = StateWrite::kStore,
                    .u = {},
                    .out = out.view()});
  const Stepped logged = step(*ops_, s, x, start);
  expect_same_bits(out.values(), logged.out);
  expect_same_bits(state.values(), logged.state);
}

TEST_P(DeltaTest, NonFiniteValuesStayInTheirHead) {
  DeltaRows inputs = make_delta_rows(kShape, 3, 9);
  const auto c = static_cast<std::size_t>(kShape.conv_channels());
  inputs.inputs[c + static_cast<std::size_t>(2 * kShape.key_width() + kShape.value_dim)] =
      kNan;  // v of head 1, row 1
  const Prepared x = prepare(*ops_, inputs, 0, 3, inputs.window);
  const std::size_t state_size = size(kShape.value_heads * kShape.key_dim, kShape.value_dim);
  const Stepped got = step(*ops_, kShape, x, std::vector<float>(state_size, 0.1f));
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < kShape.value_width(); ++i) {
      const float y = got.out[size(t, kShape.value_width()) + static_cast<std::size_t>(i)];
      EXPECT_EQ(std::isnan(y), t >= 1 && i == kShape.value_dim) << t << " " << i;
    }
  }
}

MERERUN_FOR_ALL_BACKENDS(DeltaTest);

}  // namespace
}  // namespace mererun
