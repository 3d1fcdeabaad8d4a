// Norms, attention, the delta rule and experts of the CPU backend against the reference, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/numerics.h"
#include "tests/kernels/cpu_variants.h"
#include "tests/kernels/kv_pages.h"
#include "tests/kernels/op_data.h"
#include "tests/kernels/weights.h"

namespace mererun {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t area(int rows, int cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Runs `run` on the reference and on every variant and expects equal bits.
template <typename Run>
void expect_parity(const std::vector<CpuVariant>& variants, const std::string& what, Run run) {
  const auto reference = make_reference_ops();
  const std::vector<float> expected = run(*reference);
  for (const CpuVariant& variant : variants) {
    SCOPED_TRACE(variant.name + ", " + what);
    expect_same_bits(run(*variant.make()), expected);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuRows, NormsAndElementwise) {
  Numbers numbers(1);
  for (const int n : {32, 100, 1024, 1057, 2048, 5120}) {
    const int rows = 1 + static_cast<int>(numbers.below(9));
    const std::vector<float> x = numbers.normals(area(rows, n)),
                             w = numbers.normals(static_cast<std::size_t>(n));
    expect_parity(cpu_variants(), "n " + std::to_string(n), [&](Ops& ops) {
      const Floats input(ops, rows, n, x), weight(ops, 1, n, w), out(ops, rows, n), gated(ops, rows, n),
          sum(ops, rows, n);
      ops.rms_norm({.x = input.view(), .weight = weight.view(), .eps = 1e-6f, .out = out.view()});
      ops.swiglu({.gate = input.view(), .up = out.view(), .out = gated.view()});
      ops.add_rows({.a = input.view(), .b = gated.view(), .out = sum.view()});
      std::vector<float> all = out.values();
      append(all, gated.values());
      append(all, sum.values());
      return all;
    });
  }
}

TEST(CpuRows, GatedNorm) {
  Numbers numbers(2);
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kSigmoid}) {
    for (const int dim : {16, 128, 200}) {
      const std::vector<float> x = numbers.normals(area(3, 12 * dim)),
                               z = numbers.normals(area(3, 12 * dim), 5);
      const std::vector<float> w = numbers.normals(static_cast<std::size_t>(dim));
      expect_parity(cpu_variants(), "dim " + std::to_string(dim), [&](Ops& ops) {
        const Floats input(ops, 3, 12 * dim, x), gate(ops, 3, 12 * dim, z), weight(ops, 1, dim, w),
            out(ops, 3, 12 * dim);
        ops.gated_rms_norm({.x = input.view(),
                            .z = gate.view(),
                            .weight = weight.view(),
                            .heads = 12,
                            .eps = 1e-6f,
                            .activation = activation,
                            .out = out.view()});
        return out.values();
      });
    }
  }
}

TEST(CpuRows, Argmax) {
  Numbers numbers(3);
  for (const int n : {1, 5, 31, 1000, 70001}) {
    for (const int rows : {1, 2, 5}) {
      std::vector<float> x = numbers.normals(area(rows, n));
      for (float& v : x) v = std::round(v * 4) / 4;  // many ties
      x[numbers.below(static_cast<std::uint32_t>(n))] = 9;
      x[static_cast<std::size_t>(n) - 1] = 9;
      if (rows > 1) x[static_cast<std::size_t>(n)] = kNan;
      if (rows > 2) std::fill_n(x.begin() + 2 * n, n, -std::numeric_limits<float>::infinity());
      if (rows > 3) std::fill_n(x.begin() + 3 * n, n, -0.0f);
      expect_parity(cpu_variants(), "n " + std::to_string(n), [&](Ops& ops) {
        const Floats logits(ops, rows, n, x);
        const Ints ids(ops, 1, rows);
        ops.argmax_rows({.logits = logits.view(), .ids = ids.view()});
        std::vector<float> all;
        for (const std::int32_t id : ids.values()) all.push_back(static_cast<float>(id));
        return all;
      });
    }
  }
}

/// Prepare, step (kept and stored), replay and window of one shape.
std::vector<float> run_delta(Ops& ops, const DeltaShape& s, int rows, StateWrite write, std::uint32_t seed) {
  Numbers numbers(seed);
  const int channels = s.conv_channels();
  const auto input = [&](int r, int c, float deviation) {
    return Floats(ops, r, c, numbers.normals(area(r, c), deviation));
  };
  const Floats inputs = input(rows, channels, 1), window = input(s.conv_taps - 1, channels, 1),
               conv = input(s.conv_taps, channels, 0.5f);
  const Floats a = input(rows, s.value_heads, 2), b = input(rows, s.value_heads, 2),
               a_log = input(1, s.value_heads, 1), bias = input(1, s.value_heads, 1);
  const Floats state = input(s.value_heads * s.key_dim, s.value_dim, 0.3f),
               replayed(ops, s.value_heads * s.key_dim, s.value_dim, state.values());
  const Floats q(ops, rows, s.key_width()), k(ops, rows, s.key_width()), v(ops, rows, s.value_width());
  const Floats alpha(ops, rows, s.value_heads), beta(ops, rows, s.value_heads);
  const Floats u(ops, rows, s.value_width()), out(ops, rows, s.value_width());
  ops.delta_prepare({.shape = s,
                     .inputs = inputs.view(),
                     .window = window.view(),
                     .conv_weight = conv.view(),
                     .a = a.view(),
                     .b = b.view(),
                     .a_log = a_log.view(),
                     .dt_bias = bias.view(),
                     .q = q.view(),
                     .k = k.view(),
                     .v = v.view(),
                     .alpha = alpha.view(),
                     .beta = beta.view()});
  ops.delta_step({.shape = s,
                  .q = q.view(),
                  .k = k.view(),
                  .v = v.view(),
                  .alpha = alpha.view(),
                  .beta = beta.view(),
                  .state = state.view(),
                  .write = write,
                  .u = u.view(),
                  .out = out.view()});
  ops.delta_replay(
      {.shape = s, .k = k.view(), .u = u.view(), .alpha = alpha.view(), .state = replayed.view()});
  ops.advance_window({.window = window.view(), .inputs = inputs.view()});
  std::vector<float> all;
  for (const Floats* part : {&q, &k, &v, &alpha, &beta, &u, &out, &state, &replayed, &window})
    append(all, part->values());
  return all;
}

TEST(CpuDelta, StepReplayAndWindow) {
  const DeltaShape shapes[] = {
      {2, 4, 16, 16, 4}, {1, 3, 32, 40, 3}, {2, 6, 128, 128, 4}, {3, 3, 48, 7, 4}, {4, 12, 64, 24, 2}};
  std::uint32_t seed = 10;
  for (const DeltaShape& shape : shapes) {
    for (const int rows : {1, 2, 9, 33}) {
      for (const StateWrite write : {StateWrite::kStore, StateWrite::kKeep}) {
        ++seed;
        expect_parity(cpu_variants(),
                      "rows " + std::to_string(rows) + ", Dk " + std::to_string(shape.key_dim),
                      [&](Ops& ops) { return run_delta(ops, shape, rows, write, seed); });
      }
    }
  }
}

/// Attention geometry and a cache that another pass has filled up to `history` positions.
struct AttentionCase {
  int heads, kv_heads, head_dim, rotary_dims;
  int history, rows;
  bool with_nan = false;
};

std::vector<float> run_attention(Ops& ops, const AttentionCase& c) {
  Numbers numbers(77);
  const int dim = c.head_dim;
  const int end = c.history + c.rows;
  const KvPages pages(ops, (end + kKvPagePositions - 1) / kKvPagePositions, c.kv_heads, dim);
  const int half = c.rotary_dims / 2;
  const Floats cosines(ops, end, half, numbers.normals(area(end, half))),
      sines(ops, end, half, numbers.normals(area(end, half)));
  const Floats q_norm(ops, 1, dim, numbers.normals(static_cast<std::size_t>(dim))),
      k_norm(ops, 1, dim, numbers.normals(static_cast<std::size_t>(dim)));
  std::vector<float> all;
  const auto pass = [&](int first, int rows) {
    std::vector<float> keys = numbers.normals(area(rows, c.kv_heads * dim)),
                       values = numbers.normals(area(rows, c.kv_heads * dim));
    if (c.with_nan && first > 0) {
      keys[static_cast<std::size_t>(c.kv_heads * dim) - 1] = kNan;  // the first row's last KV head
      values[static_cast<std::size_t>(dim) / 2] = std::numeric_limits<float>::infinity();
    }
    const Floats q_gate(ops, rows, c.heads * 2 * dim, numbers.normals(area(rows, c.heads * 2 * dim)));
    const Floats k(ops, rows, c.kv_heads * dim, keys), v(ops, rows, c.kv_heads * dim, values);
    const Ints positions(ops, 1, rows, consecutive(first, rows));
    const Floats q(ops, rows, c.heads * dim), out(ops, rows, c.heads * dim);
    AttentionPrepareParams prepare;
    prepare.q_gate = q_gate.view();
    prepare.k = k.view();
    prepare.v = v.view();
    prepare.q_norm = q_norm.view();
    prepare.k_norm = k_norm.view();
    prepare.positions = positions.view();
    prepare.rope = {.cos = cosines.view(), .sin = sines.view(), .rotary_dims = c.rotary_dims};
    prepare.heads = c.heads;
    prepare.q = q.view();
    prepare.cache = pages.view();
    ops.attention_prepare(prepare);
    AttendParams attend;
    attend.q = q.view();
    attend.q_gate = q_gate.view();
    attend.positions = positions.view();
    attend.cache = pages.view();
    attend.heads = c.heads;
    attend.scale_log2e = numerics::attention_scale_log2e(dim);
    attend.out = out.view();
    ops.attend(attend);
    append(all, q.values());
    append(all, out.values());
  };
  if (c.history > 0) {  // in passes that a row-by-row reference can afford
    for (int first = 0; first < c.history; first += 200) pass(first, std::min(200, c.history - first));
  }
  pass(c.history, c.rows);
  return all;
}

TEST(CpuAttention, TileAndSegmentEdges) {
  for (const AttentionCase& c :
       {AttentionCase{4, 2, 32, 8, 0, 1}, AttentionCase{4, 2, 32, 8, 0, 70},
        AttentionCase{6, 1, 64, 16, 63, 2}, AttentionCase{8, 1, 16, 16, 250, 13},
        AttentionCase{2, 2, 48, 12, 1020, 9}, AttentionCase{5, 1, 20, 4, 1023, 1},
        AttentionCase{3, 1, 80, 8, 1022, 33}, AttentionCase{4, 1, 64, 16, 2400, 4}}) {
    expect_parity(cpu_variants(), std::to_string(c.heads) + " heads, history " + std::to_string(c.history),
                  [&](Ops& ops) { return run_attention(ops, c); });
  }
}

TEST(CpuAttention, RealHeads) {
  for (const AttentionCase& c : {AttentionCase{24, 4, 256, 64, 60, 9}, AttentionCase{16, 2, 256, 64, 0, 40},
                                 AttentionCase{12, 1, 128, 64, 127, 3}}) {
    expect_parity(cpu_isas(), std::to_string(c.heads) + " heads",
                  [&](Ops& ops) { return run_attention(ops, c); });
  }
}

TEST(CpuAttention, NanStaysWithTheRowsThatSeeIt) {
  for (const AttentionCase& c :
       {AttentionCase{4, 2, 32, 8, 70, 5, true}, AttentionCase{12, 2, 64, 8, 1100, 3, true}}) {
    expect_parity(cpu_variants(), "history " + std::to_string(c.history),
                  [&](Ops& ops) { return run_attention(ops, c); });
  }
}

TEST(CpuExperts, Routing) {
  Numbers numbers(20);
  for (const int experts : {8, 64, 256}) {
    for (const bool normalise : {true, false}) {
      const int k = std::min(8, experts), rows = 40;
      std::vector<float> logits = numbers.normals(area(rows, experts));
      for (std::size_t i = 0; i < logits.size(); ++i) {
        if (i / static_cast<std::size_t>(experts) % 3 == 0) logits[i] = std::round(logits[i]);  // ties
      }
      for (int i = 0; i < 5 * experts; ++i)
        logits[numbers.below(static_cast<std::uint32_t>(experts)) + area(7, experts)] = kNan;
      logits[area(9, experts)] = kNan;
      logits[area(10, experts)] = -std::numeric_limits<float>::infinity();
      expect_parity(cpu_variants(), std::to_string(experts) + " experts", [&](Ops& ops) {
        const Floats l(ops, rows, experts, logits), weights(ops, rows, k);
        const Ints ids(ops, rows, k);
        ops.route_experts({.logits = l.view(),
                           .forced_ids = {},
                           .normalise = normalise,
                           .ids = ids.view(),
                           .weights = weights.view()});
        std::vector<float> all = weights.values();
        for (const std::int32_t id : ids.values()) all.push_back(static_cast<float>(id));
        return all;
      });
    }
  }
}

enum class Routes { kRandom, kAllTheSame, kDisjoint };

std::vector<std::int32_t> choose(Numbers& numbers, int rows, int k, int experts, Routes routes) {
  std::vector<std::int32_t> all;
  for (int t = 0; t < rows; ++t) {
    std::vector<std::int32_t> row;
    while (static_cast<int>(row.size()) < k) {
      std::int32_t id = static_cast<std::int32_t>(numbers.below(static_cast<std::uint32_t>(experts)));
      const int slot = static_cast<int>(row.size());
      if (routes == Routes::kAllTheSame) id = experts - k + slot;
      if (routes == Routes::kDisjoint) id = (t * k + slot) % experts;
      if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
    }
    std::sort(row.begin(), row.end());
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

struct ExpertWeights {
  TestWeight gate, up, down;
  TestWeight shared_gate, shared_up, shared_down;
};

std::vector<float> run_experts(Ops& ops, const ExpertWeights& w, const std::vector<std::int32_t>& chosen,
                               int rows, int k, int hidden, bool with_shared) {
  Numbers numbers(31);
  const LinearHandle gate = ops.prepare_linear(w.gate.source()), up = ops.prepare_linear(w.up.source()),
                     down = ops.prepare_linear(w.down.source());
  const Floats x(ops, rows, hidden, numbers.normals(area(rows, hidden))),
      weights(ops, rows, k, numbers.normals(area(rows, k)));
  const LinearHandle shared_gate = ops.prepare_linear(w.shared_gate.source()),
                     shared_up = ops.prepare_linear(w.shared_up.source()),
                     shared_down = ops.prepare_linear(w.shared_down.source());
  const Floats logits(ops, rows, 1, numbers.normals(area(rows, 1))), a(ops, rows, shared_gate->out()),
      b(ops, rows, shared_gate->out()), out(ops, rows, hidden);
  const Floats residual(ops, rows, hidden, numbers.normals(area(rows, hidden)));
  const Ints ids(ops, rows, k, chosen);
  ExpertMlpParams p;
  p.x = x.view();
  p.ids = ids.view();
  p.weights = weights.view();
  p.gate = gate.get();
  p.up = up.get();
  p.down = down.get();
  if (with_shared) {
    p.shared = {shared_gate.get(), shared_up.get(), shared_down.get(), logits.view(),
                a.view(),          b.view(),        out.view()};
  }
  p.residual = residual.view();
  p.out = residual.view();
  ops.expert_mlp(p);
  return residual.values();
}

TEST(CpuExperts, EveryRoutingAndFormat) {
  Numbers numbers(30);
  constexpr int kExperts = 12, kHidden = 192, kInner = 96, kShared = 160, kChosen = 3;
  std::vector<ExpertWeights> formats;
  const auto affine = [&](int out, int in, int bits, int group) {
    return TestWeight::affine(numbers, kExperts, out, in, bits, group);
  };
  const auto shared = [&](int out, int in, int bits, int group) {
    return TestWeight::affine(numbers, 1, out, in, bits, group);
  };
  formats.push_back({affine(kInner, kHidden, 4, 64), affine(kInner, kHidden, 4, 64),
                     affine(kHidden, kInner, 4, 32), shared(kShared, kHidden, 4, 64),
                     shared(kShared, kHidden, 4, 64), shared(kHidden, kShared, 4, 32)});
  formats.push_back({affine(kInner, kHidden, 3, 64), affine(kInner, kHidden, 8, 32),
                     affine(kHidden, kInner, 5, 32), shared(kShared, kHidden, 8, 32),
                     shared(kShared, kHidden, 3, 64), shared(kHidden, kShared, 6, 32)});
  formats.push_back({affine(kInner, kHidden, 2, 64), affine(kInner, kHidden, 2, 64),
                     affine(kHidden, kInner, 3, 32), shared(kInner, kHidden, 2, 64),
                     shared(kInner, kHidden, 2, 64), shared(kHidden, kInner, 3, 32)});
  formats.push_back({TestWeight::dense(numbers, kExperts, kInner, kHidden, DType::kBF16),
                     affine(kInner, kHidden, 4, 64),
                     TestWeight::dense(numbers, kExperts, kHidden, kInner, DType::kF32),
                     TestWeight::dense(numbers, 1, kShared, kHidden, DType::kF16),
                     shared(kShared, kHidden, 4, 64), shared(kHidden, kShared, 4, 32)});
  for (const ExpertWeights& format : formats) {
    for (const Routes routes : {Routes::kRandom, Routes::kAllTheSame, Routes::kDisjoint}) {
      for (const int rows : {1, 2, 9, 33, 150}) {
        const std::vector<std::int32_t> chosen = choose(numbers, rows, kChosen, kExperts, routes);
        expect_parity(rows == 150 ? cpu_isas() : cpu_variants(), "rows " + std::to_string(rows),
                      [&](Ops& ops) {
                        return run_experts(ops, format, chosen, rows, kChosen, kHidden, rows % 2 == 1);
                      });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace mererun
