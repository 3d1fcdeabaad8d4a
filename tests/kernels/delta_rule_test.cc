#include <gtest/gtest.h>

#include "tests/kernels/backends.h"
#include "tests/kernels/delta_data.h"
#include "tests/kernels/op_data.h"

namespace mererun {
namespace {

/// What delta_rule leaves: the log, the state and the normed rows.
struct Ruled {
  std::vector<float> k, alpha, u, state, out;
};

/// By the one op, or by the three it stands for.
Ruled rule(Ops& ops, const DeltaRows& x, const std::vector<float>& z, GateActivation activation, bool logs,
           bool by_parts) {
  const DeltaShape& s = x.shape;
  const int rows = x.rows;
  Numbers numbers(12);
  const PrepareMatrices m(ops, x, 0, rows, x.window);
  Floats state(ops, s.value_heads * s.key_dim, s.value_dim,
               numbers.normals(size(s.value_heads * s.key_dim, s.value_dim), 0.1f));
  Floats u(ops, rows, s.value_width()), out(ops, rows, s.value_width()), gate(ops, rows, s.value_width(), z);
  Floats weight(ops, 1, s.value_dim, numbers.normals(size(1, s.value_dim)));
  const DeltaRuleParams p{.prepare = m.params(),
                          .step = {.shape = s,
                                   .q = m.q.view(),
                                   .k = m.k.view(),
                                   .v = m.v.view(),
                                   .alpha = m.alpha.view(),
                                   .beta = m.beta.view(),
                                   .state = state.view(),
                                   .write = logs ? StateWrite::kKeep : StateWrite::kStore,
                                   .u = logs ? u.view() : TensorView{},
                                   .out = out.view()},
                          .norm = {.x = out.view(),
                                   .z = gate.view(),
                                   .weight = weight.view(),
                                   .heads = s.value_heads,
                                   .activation = activation,
                                   .out = out.view()}};
  if (by_parts) {
    ops.delta_prepare(p.prepare);
    ops.delta_step(p.step);
    ops.gated_rms_norm(p.norm);
  } else {
    ops.delta_rule(p);
  }
  if (!logs) return {{}, {}, {}, state.values(), out.values()};
  return {m.k.values(), m.alpha.values(), u.values(), state.values(), out.values()};
}

class DeltaRuleTest : public OpTest {};

TEST_P(DeltaRuleTest, EqualsItsThreeOps) {
  // The shape that a backend may have one kernel for, one with other heads, and as many rows as such a kernel
  // takes and more.
  constexpr DeltaShape kUsual{
      .key_heads = 2, .value_heads = 6, .key_dim = 128, .value_dim = 128, .conv_taps = 4};
  constexpr DeltaShape kNarrow{
      .key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 64, .conv_taps = 4};
  constexpr DeltaShape kSmall{
      .key_heads = 2, .value_heads = 6, .key_dim = 32, .value_dim = 24, .conv_taps = 4};
  for (const DeltaShape& s : {kUsual, kNarrow, kSmall}) {
    for (const int rows : {1, 2, 5, 6, 9, 16, 17, 32, 33}) {
      const DeltaRows x = make_delta_rows(s, rows, static_cast<std::uint32_t>(rows));
      Numbers numbers(11);
      const std::vector<float> z = numbers.normals(size(rows, s.value_width()));
      for (const bool logs : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.value_dim << " values, " << rows << " rows, log " << logs);
        const auto activation = logs ? GateActivation::kSilu : GateActivation::kSigmoid;
        const Ruled got = rule(*ops_, x, z, activation, logs, false);
        const Ruled expected = rule(*definition_, x, z, activation, logs, true);
        expect_same_bits(got.k, expected.k);
        expect_same_bits(got.alpha, expected.alpha);
        expect_same_bits(got.u, expected.u);
        expect_same_bits(got.state, expected.state);
        expect_same_bits(got.out, expected.out);
      }
    }
  }
}

MERERUN_FOR_ALL_BACKENDS(DeltaRuleTest);

}  // namespace
}  // namespace mererun
