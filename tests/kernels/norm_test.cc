#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/numerics.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/op_data.h"

namespace mererun {
namespace {

class RmsNormTest : public OpTest {
 protected:
  static std::vector<float> run(Ops& ops, const std::vector<float>& x, const std::vector<float>& weight,
                                int rows, float eps) {
    const int n = static_cast<int>(weight.size());
    Floats in(ops, rows, n, x), w(ops, 1, n, weight), out(ops, rows, n);
    ops.rms_norm({in.view(), w.view(), eps, out.view()});
    return out.values();
  }
};

TEST_P(RmsNormTest, WorkedByHand) {
  const float r = 1.0f / std::sqrt(25.0f / 2.0f + 0.0f);
  expect_same_bits(run(*ops_, {3, 4}, {1, 2}, 1, 0.0f), {(3 * r) * 1, (4 * r) * 2});
}

TEST_P(RmsNormTest, SumsInLanes) {
  // 16 and 48 meet in lane 16 and survive next to the large square in lane 0 (a running sum would lose them).
  std::vector<float> x(64, 0.0f);
  x[0] = 0x1p12f;
  x[16] = x[48] = 1;
  const float r = 1.0f / std::sqrt((0x1p24f + 2) / 64.0f);
  const std::vector<float> got = run(*ops_, x, std::vector<float>(64, 1.0f), 1, 0.0f);
  EXPECT_EQ(got[0], 0x1p12f * r);
  EXPECT_EQ(got[48], r);
}

TEST_P(RmsNormTest, IsAccurateAndMatchesTheDefinition) {
  for (int n : {1, 31, 32, 33, 128, 1000, 1023, 1024, 1100, 2048, 5120}) {
    Numbers numbers(static_cast<std::uint32_t>(n));
    const std::vector<float> x = numbers.normals(static_cast<std::size_t>(3 * n));
    const std::vector<float> w = numbers.normals(static_cast<std::size_t>(n));
    std::vector<double> expected;
    for (int t = 0; t < 3; ++t) {
      double sum = 0;
      for (int i = 0; i < n; ++i)
        sum += std::pow(static_cast<double>(x[static_cast<std::size_t>(t * n + i)]), 2);
      for (int i = 0; i < n; ++i) {
        expected.push_back(x[static_cast<std::size_t>(t * n + i)] / std::sqrt(sum / n + 1e-6) *
                           w[static_cast<std::size_t>(i)]);
      }
    }
    SCOPED_TRACE(n);
    const std::vector<float> got = run(*ops_, x, w, 3, 1e-6f);
    EXPECT_LT(relative_error(got, expected), 3e-7);
    expect_same_bits(got, run(*definition_, x, w, 3, 1e-6f));
    for (int t = 0; t < 3; ++t)
      expect_same_bits(run(*ops_, rows_of(x, n, t, 1), w, 1, 1e-6f), rows_of(got, n, t, 1));
  }
}

/// 1 / sqrt(S / n + eps) with S in the contract's lanes.
float inverse_rms(const float* x, int n, float eps) {
  std::vector<float> lanes(n >= 1024 ? 256 : 32, 0.0f);
  for (int i = 0; i < n; ++i) {
    float& lane = lanes[static_cast<std::size_t>(i) % lanes.size()];
    lane = std::fma(x[i], x[i], lane);
  }
  for (std::size_t step = lanes.size() / 2; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return 1.0f / std::sqrt(lanes[0] / static_cast<float>(n) + eps);
}

TEST_P(RmsNormTest, FollowsTheContractBitForBit) {
  for (int n : {20, 128, 1023, 1024, 2560}) {
    Numbers numbers(static_cast<std::uint32_t>(n));
    const std::vector<float> x = numbers.normals(static_cast<std::size_t>(n));
    const std::vector<float> w = numbers.normals(static_cast<std::size_t>(n));
    const float r = inverse_rms(x.data(), n, 1e-6f);
    std::vector<float> expected;
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back((x[i] * r) * w[i]);
    SCOPED_TRACE(n);
    expect_same_bits(run(*ops_, x, w, 1, 1e-6f), expected);
  }
}

TEST_P(RmsNormTest, WorksInPlaceAndOnColumnRanges) {
  Numbers numbers(2);
  const std::vector<float> x = numbers.normals(2 * 96), w = numbers.normals(32);
  std::vector<float> middle;
  for (int t = 0; t < 2; ++t) {
    const std::vector<float> row = rows_of(x, 96, t, 1);
    middle.insert(middle.end(), row.begin() + 32, row.begin() + 64);
  }
  const std::vector<float> normed = run(*ops_, middle, w, 2, 1e-5f);
  std::vector<float> expected = x;
  for (std::size_t i = 0; i < 64; ++i) expected[i / 32 * 96 + 32 + i % 32] = normed[i];
  Floats all(*ops_, 2, 96, x), weight(*ops_, 1, 32, w);
  const TensorView view = all.view().col_range(32, 32);
  ops_->rms_norm({view, weight.view(), 1e-5f, view});
  expect_same_bits(all.values(), expected);
}

TEST_P(RmsNormTest, NonFiniteRowsSurfaceAlone) {
  Numbers numbers(4);
  std::vector<float> x = numbers.normals(3 * 64);
  const std::vector<float> w(64, 1.0f);
  const std::vector<float> clean = run(*ops_, x, w, 3, 1e-6f);
  x[64 + 5] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = run(*ops_, x, w, 3, 1e-6f);
  expect_same_bits(rows_of(got, 64, 0, 1), rows_of(clean, 64, 0, 1));
  expect_same_bits(rows_of(got, 64, 2, 1), rows_of(clean, 64, 2, 1));
  EXPECT_TRUE(all_nan(rows_of(got, 64, 1, 1)));
}

MERERUN_FOR_ALL_BACKENDS(RmsNormTest);

class GatedRmsNormTest : public OpTest {};

TEST_P(GatedRmsNormTest, NormsEachHeadThenGates) {
  constexpr int kHeads = 3, kDim = 128, kRows = 2;
  for (GateActivation activation : {GateActivation::kSilu, GateActivation::kSigmoid}) {
    Numbers numbers(7);
    const std::vector<float> x = numbers.normals(kRows * kHeads * kDim), z = numbers.normals(x.size());
    const std::vector<float> w = numbers.normals(kDim);
    std::vector<double> expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double sum = 0;
      const std::size_t head = i / kDim * kDim;
      for (std::size_t j = head; j < head + kDim; ++j) sum += static_cast<double>(x[j]) * x[j];
      const double gate = 1 / (1 + std::exp(-static_cast<double>(z[i])));
      expected.push_back(x[i] / std::sqrt(sum / kDim + 1e-6) * w[i % kDim] *
                         (activation == GateActivation::kSilu ? z[i] * gate : gate));
    }
    const auto run = [&](Ops& ops) {
      Floats in(ops, kRows, kHeads * kDim, x), gate(ops, kRows, kHeads * kDim, z), weight(ops, 1, kDim, w);
      ops.gated_rms_norm({in.view(), gate.view(), weight.view(), kHeads, 1e-6f, activation, in.view()});
      return in.values();
    };
    EXPECT_LT(relative_error(run(*ops_), expected), 5e-7);
    std::vector<float> exact;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float r = inverse_rms(x.data() + i / kDim * kDim, kDim, 1e-6f);
      const float gate =
          activation == GateActivation::kSilu ? numerics::silu_f32(z[i]) : numerics::sigmoid_f32(z[i]);
      exact.push_back(((x[i] * r) * w[i % kDim]) * gate);
    }
    expect_same_bits(run(*ops_), exact);
    expect_same_bits(run(*ops_), run(*definition_));
  }
}

TEST_P(GatedRmsNormTest, WorkedByHand) {
  Floats x(*ops_, 1, 4, {3, 4, 1, 1}), z(*ops_, 1, 4, {0, 100, 0, -200}), w(*ops_, 1, 2, {1, 2}),
      out(*ops_, 1, 4);
  ops_->gated_rms_norm({x.view(), z.view(), w.view(), 2, 0.0f, GateActivation::kSigmoid, out.view()});
  const float r = 1.0f / std::sqrt(12.5f);
  expect_same_bits(out.values(), {(3 * r) * 0.5f, (4 * r) * 2, 0.5f, 0.0f});
}

MERERUN_FOR_ALL_BACKENDS(GatedRmsNormTest);

}  // namespace
}  // namespace mererun
