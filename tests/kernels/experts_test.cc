#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/numerics.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/op_data.h"
#include "tests/kernels/weights.h"

namespace mererun {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Ids = std::vector<std::int32_t>;

struct Routed {
  Ids ids;
  std::vector<float> weights;
};

Routed route(Ops& ops, const std::vector<float>& logits, int rows, int k, bool normalise = true,
             const Ids& forced = {}) {
  const int experts = static_cast<int>(logits.size()) / rows;
  Floats in(ops, rows, experts, logits), weights(ops, rows, k);
  Ints ids(ops, rows, k);
  std::optional<Ints> chosen;
  if (!forced.empty()) chosen.emplace(ops, rows, k, forced);
  ops.route_experts(
      {in.view(), chosen ? chosen->view() : TensorView{}, normalise, ids.view(), weights.view()});
  return {ids.values(), weights.values()};
}

class RouteExpertsTest : public OpTest {};

TEST_P(RouteExpertsTest, WorkedByHand) {
  const Routed got = route(*ops_, {2, 1, 0, -1}, 1, 2);
  EXPECT_EQ(got.ids, (Ids{0, 1}));
  EXPECT_NEAR(got.weights[0], 0.7311, 1e-4);
  EXPECT_NEAR(got.weights[1], 0.2689, 1e-4);
  const Routed full = route(*ops_, {2, 1, 0, -1}, 1, 2, false);
  EXPECT_NEAR(full.weights[0], 0.6439, 1e-4);
  EXPECT_NEAR(full.weights[1], 0.2369, 1e-4);
}

TEST_P(RouteExpertsTest, SumsTheChosenInAscendingId) {
  const std::vector<float> logits = {0.3f, 2.5f, -1, 1.75f, 0.9f};
  const Routed got = route(*ops_, logits, 1, 3);
  ASSERT_EQ(got.ids, (Ids{1, 3, 4}));
  const float e1 = numerics::exp_f32(2.5f - 2.5f), e3 = numerics::exp_f32(1.75f - 2.5f),
              e4 = numerics::exp_f32(0.9f - 2.5f);
  const float sum = ((0.0f + e1) + e3) + e4;
  expect_same_bits(got.weights, {e1 / sum, e3 / sum, e4 / sum});
}

TEST_P(RouteExpertsTest, TiesGoToTheLowestId) {
  EXPECT_EQ(route(*ops_, {1, 1, 1, 1, 1, 1}, 1, 3).ids, (Ids{0, 1, 2}));
  EXPECT_EQ(route(*ops_, {0, 5, 3, 3, 3, 7}, 1, 3).ids, (Ids{1, 2, 5}));
  EXPECT_EQ(route(*ops_, {0.0f, -0.0f, -1}, 1, 1).ids, (Ids{0}));
  EXPECT_EQ(route(*ops_, {-kInf, -kInf, -kInf, 1}, 1, 2).ids, (Ids{0, 3}));
}

TEST_P(RouteExpertsTest, NanNeverWinsUnlessNothingElseIsLeft) {
  const Routed enough = route(*ops_, {kNan, 1, kNan, 2, -5}, 1, 3);
  EXPECT_EQ(enough.ids, (Ids{1, 3, 4}));
  for (float w : enough.weights) EXPECT_TRUE(std::isfinite(w));
  const Routed few = route(*ops_, {kNan, 1, kNan, kNan, -5}, 1, 3);
  EXPECT_EQ(few.ids, (Ids{0, 1, 4}));
  EXPECT_TRUE(all_nan(few.weights));
  const Routed none = route(*ops_, std::vector<float>(5, kNan), 1, 2);
  EXPECT_EQ(none.ids, (Ids{0, 1}));
  EXPECT_TRUE(all_nan(none.weights));
  EXPECT_TRUE(all_nan(route(*ops_, {kNan, 1, 0, 2}, 1, 2, false).weights));
}

TEST_P(RouteExpertsTest, ForcedIdsReplaceTheChoice) {
  const Routed got = route(*ops_, {4, 3, 2, 1, 0, 1, 2, 3}, 2, 2, true, {1, 3, 0, 2});
  EXPECT_EQ(got.ids, (Ids{1, 3, 0, 2}));
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(got.weights[2], 1 / (1 + std::exp(2.0)), 1e-6);
}

TEST_P(RouteExpertsTest, AgreesWithASortInDouble) {
  for (const auto& [experts, k] : {std::pair{16, 4}, {256, 8}, {512, 10}, {1024, 8}}) {
    for (bool normalise : {true, false}) {
      Numbers numbers(static_cast<std::uint32_t>(experts));
      const std::vector<float> logits = numbers.normals(static_cast<std::size_t>(4 * experts), 2);
      const Routed got = route(*ops_, logits, 4, k, normalise);
      std::vector<double> weights;
      Ids ids;
      for (int t = 0; t < 4; ++t) {
        const std::vector<float> row = rows_of(logits, experts, t, 1);
        Ids order(row.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
          return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
        });
        Ids chosen(order.begin(), order.begin() + k);
        std::sort(chosen.begin(), chosen.end());
        double sum = 0;
        for (std::int32_t e : normalise ? chosen : order)
          sum += std::exp(static_cast<double>(row[static_cast<std::size_t>(e)]));
        for (std::int32_t e : chosen)
          weights.push_back(std::exp(static_cast<double>(row[static_cast<std::size_t>(e)])) / sum);
        ids.insert(ids.end(), chosen.begin(), chosen.end());
        const Routed alone = route(*ops_, row, 1, k, normalise);
        EXPECT_EQ(alone.ids, chosen);
        expect_same_bits(alone.weights, rows_of(got.weights, k, t, 1));
      }
      EXPECT_EQ(got.ids, ids);
      EXPECT_LT(relative_error(got.weights, weights), 5e-7);
      expect_same_bits(got.weights, route(*definition_, logits, 4, k, normalise).weights);
    }
  }
}

MERERUN_FOR_ALL_BACKENDS(RouteExpertsTest);

constexpr int kExperts = 6, kChosen = 3;

/// Shapes of a layer and the format of its down projections.
struct MixtureForm {
  int hidden, inner, shared_inner, down_bits, down_group;
};
constexpr MixtureForm kMixed{128, 64, 96, 3, 32}, kUniform{128, 64, 64, 4, 64},
    kWideShared{128, 64, 128, 4, 64}, kSliced{2048, 128, 128, 4, 64};

/// Weights and inputs of one mixture-of-experts layer.
struct Mixture {
  explicit Mixture(int count, std::uint32_t seed = 1, const MixtureForm& of = kMixed)
      : form(of), rows(count), numbers(seed) {
    x = numbers.normals(static_cast<std::size_t>(rows * form.hidden));
    residual = numbers.normals(x.size());
    shared_logits = numbers.normals(static_cast<std::size_t>(rows));
    const Routed routed = route(*reference::make_baseline_reference_ops(),
                                numbers.normals(static_cast<std::size_t>(rows * kExperts)), rows, kChosen);
    ids = routed.ids;
    weights = routed.weights;
  }

  std::vector<float> run(Ops& ops, bool has_shared = true) const {
    const LinearHandle g = ops.prepare_linear(gate.source()), u = ops.prepare_linear(up.source());
    const LinearHandle d = ops.prepare_linear(down.source());
    return run(ops, *g, *u, *d, has_shared);
  }
  std::vector<float> run(Ops& ops, const LinearWeight& g, const LinearWeight& u, const LinearWeight& d,
                         bool has_shared = true) const {
    const Floats in(ops, rows, form.hidden, x), w(ops, rows, kChosen, weights);
    const Floats stream(ops, rows, form.hidden, residual);
    const Ints chosen(ops, rows, kChosen, ids);
    const SharedParts parts(ops, *this);
    ops.expert_mlp({.x = in.view(),
                    .ids = chosen.view(),
                    .weights = w.view(),
                    .gate = &g,
                    .up = &u,
                    .down = &d,
                    .shared = has_shared ? parts.params() : SharedExpert{},
                    .residual = stream.view(),
                    .out = stream.view()});
    return stream.values();
  }
  /// Row t of the shared expert, by ops of one linear each.
  std::vector<float> shared_row(Ops& ops, int t) const {
    const LinearHandle g = ops.prepare_linear(shared_gate.source()),
                       u = ops.prepare_linear(shared_up.source());
    const LinearHandle d = ops.prepare_linear(shared_down.source());
    return feed_forward(ops, *g, *u, *d, t);
  }
  std::vector<float> feed_forward(Ops& ops, const LinearWeight& g, const LinearWeight& u,
                                  const LinearWeight& d, int t) const {
    const Floats in(ops, 1, form.hidden, rows_of(x, form.hidden, t, 1)), a(ops, 1, g.out()),
        b(ops, 1, g.out());
    const Floats y(ops, 1, form.hidden);
    ops.gated_linear({in.view(), &g, &u, a.view(), b.view(), a.view()});
    const LinearParams::Target target{&d, y.view(), {}};
    ops.linear({a.view(), {&target, 1}});
    return y.values();
  }

  Mixture row(int t) const {
    Mixture one = *this;
    one.rows = 1;
    one.x = rows_of(x, form.hidden, t, 1);
    one.residual = rows_of(residual, form.hidden, t, 1);
    one.shared_logits = rows_of(shared_logits, 1, t, 1);
    one.weights = rows_of(weights, kChosen, t, 1);
    one.ids = Ids(ids.begin() + t * kChosen, ids.begin() + (t + 1) * kChosen);
    return one;
  }

  /// The shared expert on a backend.
  struct SharedParts {
    SharedParts(Ops& ops, const Mixture& m)
        : gate(ops.prepare_linear(m.shared_gate.source())),
          up(ops.prepare_linear(m.shared_up.source())),
          down(ops.prepare_linear(m.shared_down.source())),
          logits(ops, m.rows, 1, m.shared_logits),
          a(ops, m.rows, m.form.shared_inner),
          b(ops, m.rows, m.form.shared_inner),
          out(ops, m.rows, m.form.hidden) {}
    SharedExpert params() const {
      return {gate.get(), up.get(), down.get(), logits.view(), a.view(), b.view(), out.view()};
    }
    LinearHandle gate, up, down;
    Floats logits, a, b, out;
  };

  MixtureForm form;
  int rows;
  Numbers numbers;
  TestWeight gate = TestWeight::affine(numbers, kExperts, form.inner, form.hidden, 4, 64);
  TestWeight up = TestWeight::affine(numbers, kExperts, form.inner, form.hidden, 4, 64);
  TestWeight down =
      TestWeight::affine(numbers, kExperts, form.hidden, form.inner, form.down_bits, form.down_group);
  TestWeight shared_gate = TestWeight::affine(numbers, 1, form.shared_inner, form.hidden, 4, 64);
  TestWeight shared_up = TestWeight::affine(numbers, 1, form.shared_inner, form.hidden, 4, 64);
  TestWeight shared_down =
      TestWeight::affine(numbers, 1, form.hidden, form.shared_inner, form.down_bits, form.down_group);
  std::vector<float> x, residual, shared_logits, weights;
  Ids ids;
};

/// down(silu(gate x) up x) in double; the values between are rounded to float.
std::vector<double> feed_forward(const TestWeight& gate, const TestWeight& up, const TestWeight& down,
                                 const std::vector<float>& x, int expert) {
  const std::vector<double> g = gate.apply(x, 1, expert), u = up.apply(x, 1, expert);
  std::vector<float> hidden;
  for (std::size_t j = 0; j < g.size(); ++j)
    hidden.push_back(static_cast<float>(g[j] / (1 + std::exp(-g[j])) * u[j]));
  return down.apply(hidden, 1, expert);
}

class ExpertMlpTest : public OpTest {};

TEST_P(ExpertMlpTest, AgreesWithDouble) {
  for (const MixtureForm& form : {kMixed, kUniform, kWideShared}) {
    const Mixture m(5, 1, form);
    for (bool has_shared : {true, false}) {
      std::vector<double> expected(m.residual.begin(), m.residual.end());
      for (int t = 0; t < m.rows; ++t) {
        const std::vector<float> x = rows_of(m.x, form.hidden, t, 1);
        const auto add = [&](double weight, const std::vector<double>& y) {
          for (std::size_t j = 0; j < y.size(); ++j)
            expected[static_cast<std::size_t>(t * form.hidden) + j] += weight * y[j];
        };
        for (int i = 0; i < kChosen; ++i) {
          const auto at = static_cast<std::size_t>(t * kChosen + i);
          add(m.weights[at], feed_forward(m.gate, m.up, m.down, x, m.ids[at]));
        }
        if (!has_shared) continue;
        const double share =
            1 / (1 + std::exp(-static_cast<double>(m.shared_logits[static_cast<std::size_t>(t)])));
        add(share, feed_forward(m.shared_gate, m.shared_up, m.shared_down, x, 0));
      }
      const std::vector<float> got = m.run(*ops_, has_shared);
      EXPECT_LT(relative_error(got, expected), 1e-4);
      expect_same_bits(got, m.run(*definition_, has_shared));
    }
  }
}

TEST_P(ExpertMlpTest, ComposesTheOpsInAscendingId) {
  // The experts' outputs by `linear` on a source cut to one expert, combined by hand.
  const auto expert_of = [](const TestWeight& w, int expert) {
    LinearSource s = w.source();
    const std::int64_t rows = static_cast<std::int64_t>(expert) * s.out;
    s.experts = 1;
    s.weight = static_cast<const unsigned char*>(s.weight) + rows * s.weight_row_bytes();
    s.scales = static_cast<const unsigned char*>(s.scales) + rows * s.scale_row_bytes();
    s.biases = static_cast<const unsigned char*>(s.biases) + rows * s.scale_row_bytes();
    return s;
  };
  for (const MixtureForm& form : {kMixed, kUniform, kWideShared, kSliced}) {
    const Mixture m(1, 2, form);
    std::vector<float> acc(static_cast<std::size_t>(form.hidden), 0.0f);
    for (std::size_t i = 0; i < kChosen; ++i) {
      const LinearHandle g = ops_->prepare_linear(expert_of(m.gate, m.ids[i]));
      const LinearHandle u = ops_->prepare_linear(expert_of(m.up, m.ids[i]));
      const LinearHandle d = ops_->prepare_linear(expert_of(m.down, m.ids[i]));
      const std::vector<float> out = m.feed_forward(*ops_, *g, *u, *d, 0);
      for (std::size_t j = 0; j < acc.size(); ++j) acc[j] = std::fma(m.weights[i], out[j], acc[j]);
    }
    const std::vector<float> shared = m.shared_row(*ops_, 0);
    const float share = numerics::sigmoid_f32(m.shared_logits[0]);
    std::vector<float> with = m.residual, without = m.residual;
    for (std::size_t j = 0; j < acc.size(); ++j) {
      with[j] = m.residual[j] + std::fma(share, shared[j], acc[j]);
      without[j] = m.residual[j] + acc[j];
    }
    expect_same_bits(m.run(*ops_), with);
    expect_same_bits(m.run(*ops_, false), without);
  }
}

TEST_P(ExpertMlpTest, RowsDoNotDependOnWidth) {
  for (const MixtureForm& form : {kMixed, kUniform, kWideShared, kSliced}) {
    for (const int rows :
         {16, 19}) {  // experts with more than one run of eight rows, the shared one among them
      const Mixture m(rows, 3, form);
      const std::vector<float> all = m.run(*ops_);
      for (int t = 0; t < m.rows; t += form.hidden < 1024 ? 1 : 6)
        expect_same_bits(m.row(t).run(*ops_), rows_of(all, form.hidden, t, 1));
    }
  }
}

TEST_P(ExpertMlpTest, ManyRowsEqualSingleRows) {
  const Mixture m(150, 6);  // an expert has more rows than one entry of a list holds
  const std::vector<float> all = m.run(*ops_);
  expect_same_bits(all, m.run(*definition_));
  for (const int t : {0, 31, 32, 100, 149})
    expect_same_bits(m.row(t).run(*ops_), rows_of(all, m.form.hidden, t, 1));
}

TEST_P(ExpertMlpTest, RowsDoNotDependOnTheirMatesExperts) {
  for (const MixtureForm& form : {kMixed, kUniform}) {
    Mixture m(4, 4, form);
    const std::vector<float> before = m.run(*ops_);
    for (int t = 1; t < 4; ++t) {
      for (int i = 0; i < kChosen; ++i)
        m.ids[static_cast<std::size_t>(t * kChosen + i)] = m.ids[static_cast<std::size_t>(i)];
      m.x[static_cast<std::size_t>(t * form.hidden)] = kNan;
    }
    const std::vector<float> after = m.run(*ops_);
    expect_same_bits(rows_of(after, form.hidden, 0, 1), rows_of(before, form.hidden, 0, 1));
    for (int t = 1; t < 4; ++t) EXPECT_TRUE(all_nan(rows_of(after, form.hidden, t, 1)));
  }
}

TEST_P(ExpertMlpTest, ReadsInterleavedStacks) {
  // A fused stack: each expert's gate rows, then its up rows.
  const Mixture m(3, 5);
  const LinearSource g = m.gate.source(), u = m.up.source();
  std::vector<unsigned char> weight, scales, biases;
  const auto append = [](std::vector<unsigned char>& to, const void* from, std::int64_t row_bytes,
                         int expert) {
    const auto* first = static_cast<const unsigned char*>(from) + expert * kMixed.inner * row_bytes;
    to.insert(to.end(), first, first + kMixed.inner * row_bytes);
  };
  for (int e = 0; e < kExperts; ++e) {
    for (const LinearSource* s : {&g, &u}) {
      append(weight, s->weight, s->weight_row_bytes(), e);
      append(scales, s->scales, s->scale_row_bytes(), e);
      append(biases, s->biases, s->scale_row_bytes(), e);
    }
  }
  LinearSource fused_gate = g, fused_up = u;
  fused_gate.expert_stride = fused_up.expert_stride = 2 * kMixed.inner;
  fused_gate.weight = weight.data();
  fused_gate.scales = scales.data();
  fused_gate.biases = biases.data();
  fused_up.weight = weight.data() + kMixed.inner * u.weight_row_bytes();
  fused_up.scales = scales.data() + kMixed.inner * u.scale_row_bytes();
  fused_up.biases = biases.data() + kMixed.inner * u.scale_row_bytes();
  const LinearHandle wg = ops_->prepare_linear(fused_gate), wu = ops_->prepare_linear(fused_up);
  const LinearHandle wd = ops_->prepare_linear(m.down.source());
  expect_same_bits(m.run(*ops_, *wg, *wu, *wd), m.run(*ops_));
}

MERERUN_FOR_ALL_BACKENDS(ExpertMlpTest);

}  // namespace
}  // namespace mererun
