#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/backends.h"
#include "tests/kernels/op_data.h"
#include "tests/kernels/weights.h"

namespace mererun {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class LinearTest : public OpTest {
 protected:
  static std::vector<float> run(Ops& ops, const LinearSource& source, const std::vector<float>& x, int rows,
                                const std::vector<float>& residual = {}) {
    const LinearHandle weight = ops.prepare_linear(source);
    Floats in(ops, rows, source.in, x);
    Floats out(ops, rows, source.out);
    LinearParams::Target target{weight.get(), out.view(), {}};
    if (!residual.empty()) {
      Floats added(ops, rows, source.out, residual);
      target.residual = added.view();
      ops.linear({in.view(), {&target, 1}});
      return out.values();
    }
    ops.linear({in.view(), {&target, 1}});
    return out.values();
  }
};

/// The quantised linear of docs/exactness.md for one output row, written a second time.
float contract_row(const TestWeight& w, const LinearSource& s, const std::vector<float>& x, int row) {
  const int groups = s.in / s.group;
  const int slices = s.in >= 2048 ? 8 : 1;
  std::vector<float> parts;
  for (int j = 0; j < slices; ++j) {
    float acc = 0;
    for (int g = j * groups / slices; g < (j + 1) * groups / slices; ++g) {
      float absmax = 0;
      for (int i = 0; i < s.group; ++i)
        absmax = std::max(absmax, std::fabs(x[static_cast<std::size_t>(g * s.group + i)]));
      const float d = absmax < 0x1p-100f ? 1.0f : absmax / 32512.0f;
      std::int64_t dot = 0, sum = 0;
      for (int i = 0; i < s.group; ++i) {
        const auto at = static_cast<std::size_t>(g * s.group + i);
        const auto code = static_cast<std::int64_t>(std::nearbyint(x[at] / d));
        dot += code * w.codes()[static_cast<std::size_t>(row * s.in) + at];
        sum += code;
      }
      const auto side = static_cast<std::size_t>(row * groups + g);
      acc = std::fma(w.scale(side) * d, static_cast<float>(dot), acc);
      acc = std::fma(w.bias(side), d * static_cast<float>(sum), acc);
    }
    parts.push_back(acc);
  }
  if (slices == 1) return parts[0];
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

/// The dense linear: 32 lanes, two elements a step, joined by halving.
float dense_contract_row(const std::vector<double>& w, const std::vector<float>& x, int in, int row) {
  std::vector<float> lanes(32, 0.0f);
  for (int k = 0; k < in; ++k) {
    float& lane = lanes[static_cast<std::size_t>(k / 2 % 32)];
    lane = std::fma(static_cast<float>(w[static_cast<std::size_t>(row * in + k)]),
                    x[static_cast<std::size_t>(k)], lane);
  }
  for (std::size_t step = 16; step > 0; step /= 2) {
    for (std::size_t i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

TEST_P(LinearTest, WorkedGroupByHand) {
  // w[i] = -0.3 + 0.1 (i mod 16), packed as codes 15 - (i mod 16) with scale -0.1 and bias 1.2.
  const std::vector<std::uint32_t> words = {0x89ABCDEF, 0x01234567, 0x89ABCDEF, 0x01234567};
  const float scale = -0.1f, bias = 1.2f;
  const LinearSource source{.name = "worked",
                            .format = WeightFormat::kAffine,
                            .experts = 1,
                            .out = 1,
                            .in = 32,
                            .expert_stride = 0,
                            .bits = 4,
                            .group = 32,
                            .dtype = DType::kF32,
                            .weight = words.data(),
                            .scales = &scale,
                            .biases = &bias};
  std::vector<float> x(32, 0.0f);
  x[0] = 1;
  const float d = 1.0f / 32512.0f;
  const float first = std::fma(bias, d * 32512.0f, std::fma(scale * d, 15 * 32512.0f, 0.0f));
  expect_same_bits(run(*ops_, source, x, 1), {first});
  EXPECT_NEAR(first, -0.3, 1e-6);
  x[0] = 0;
  x[3] = 2;
  EXPECT_NEAR(run(*ops_, source, x, 1)[0], 0.0, 1e-6);
}

TEST_P(LinearTest, FollowsTheContractBitForBit) {
  for (const auto& [in, group, bits] : std::vector<std::tuple<int, int, int>>{{64, 64, 4},
                                                                              {320, 64, 4},
                                                                              {2048, 64, 4},
                                                                              {2112, 64, 8},
                                                                              {2080, 32, 3},
                                                                              {2176, 128, 8},
                                                                              {1984, 64, 6}}) {
    Numbers numbers(static_cast<std::uint32_t>(in + bits));
    const TestWeight w = TestWeight::affine(numbers, 1, 5, in, bits, group);
    const std::vector<float> x = numbers.normals(static_cast<std::size_t>(in));
    std::vector<float> expected;
    for (int row = 0; row < 5; ++row) expected.push_back(contract_row(w, w.source(), x, row));
    SCOPED_TRACE(testing::Message() << in << " columns, group " << group << ", " << bits << " bits");
    expect_same_bits(run(*ops_, w.source(), x, 1), expected);
  }
}

TEST_P(LinearTest, EveryLayoutIsAccurate) {
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    for (int group : {32, 64, 128}) {
      for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
        Numbers numbers(static_cast<std::uint32_t>(bits * 1000 + group));
        const TestWeight w = TestWeight::affine(numbers, 1, 24, 384, bits, group, dtype);
        const std::vector<float> x = numbers.normals(3 * 384);
        SCOPED_TRACE(testing::Message() << bits << " bits, group " << group << ", " << name_of(dtype));
        const std::vector<float> got = run(*ops_, w.source(), x, 3);
        EXPECT_LT(relative_error(got, w.apply(x, 3)), 1e-4);
        expect_same_bits(got, run(*definition_, w.source(), x, 3));
      }
    }
  }
}

TEST_P(LinearTest, LargestCodesStayExact) {
  // 128 codes of 255 with activations at the end of their range: the group dot is near 2^30.
  Numbers numbers(1);
  TestWeight w = TestWeight::affine(numbers, 1, 1, 128, 8, 128, DType::kF32);
  w.weight_bytes().assign(128, 255);
  std::vector<float> x(128, -1.0f);
  const float d = 1.0f / 32512.0f;
  const float expected = std::fma(w.bias(0), d * (-128.0f * 32512.0f),
                                  std::fma(w.scale(0) * d, static_cast<float>(-128 * 255 * 32512), 0.0f));
  expect_same_bits(run(*ops_, w.source(), x, 1), {expected});
}

TEST_P(LinearTest, RowsDoNotDependOnWidth) {
  Numbers numbers(3);
  const TestWeight affine = TestWeight::affine(numbers, 1, 33, 2048, 4, 64);
  const TestWeight dense = TestWeight::dense(numbers, 1, 33, 2048, DType::kBF16);
  for (const TestWeight* w : {&affine, &dense}) {
    const std::vector<float> x = numbers.normals(9 * 2048);
    const std::vector<float> all = run(*ops_, w->source(), x, 9);
    expect_same_bits(all, run(*definition_, w->source(), x, 9));
    for (int t = 0; t < 9; ++t) {
      expect_same_bits(run(*ops_, w->source(), rows_of(x, 2048, t, 1), 1), rows_of(all, 33, t, 1));
    }
    for (int width : {2, 3, 5, 8}) {
      expect_same_bits(run(*ops_, w->source(), rows_of(x, 2048, 1, width), width),
                       rows_of(all, 33, 1, width));
    }
  }
}

TEST_P(LinearTest, ManyRowsEqualSingleRows) {
  // A prompt's rows: more than a block of any backend, and a last one that is not full.
  constexpr int kRows = 130, kOut = 41;
  Numbers numbers(8);
  for (const int bits : {4, 8}) {
    for (const int in : {256, 2176, 2240}) {  // one slice; eight; an odd number of groups
      const TestWeight w = TestWeight::affine(numbers, 1, kOut, in, bits, 64);
      std::vector<float> x = numbers.normals(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(in));
      x[static_cast<std::size_t>(77 * in + 5)] = kInf;
      const std::vector<float> residual = numbers.normals(static_cast<std::size_t>(kRows * kOut));
      const std::vector<float> all = run(*ops_, w.source(), x, kRows, residual);
      expect_same_bits(all, run(*definition_, w.source(), x, kRows, residual));
      for (const int t : {0, 63, 64, 76, 78, 127, 129}) {
        expect_same_bits(run(*ops_, w.source(), rows_of(x, in, t, 1), 1, rows_of(residual, kOut, t, 1)),
                         rows_of(all, kOut, t, 1));
      }
      EXPECT_TRUE(all_nan(rows_of(all, kOut, 77, 1)));
    }
  }
}

TEST_P(LinearTest, NonFiniteRowsDoNotTouchTheirNeighbours) {
  Numbers numbers(4);
  const TestWeight affine = TestWeight::affine(numbers, 1, 9, 256, 4, 64);
  const TestWeight dense = TestWeight::dense(numbers, 1, 9, 256, DType::kF32);
  for (const TestWeight* w : {&affine, &dense}) {
    std::vector<float> x = numbers.normals(3 * 256);
    const std::vector<float> clean = run(*ops_, w->source(), x, 3);
    for (float bad : {kNan, kInf, -kInf}) {
      x[256 + 77] = bad;
      const std::vector<float> got = run(*ops_, w->source(), x, 3);
      expect_same_bits(rows_of(got, 9, 0, 1), rows_of(clean, 9, 0, 1));
      expect_same_bits(rows_of(got, 9, 2, 1), rows_of(clean, 9, 2, 1));
      for (float y : rows_of(got, 9, 1, 1)) EXPECT_FALSE(std::isfinite(y));
    }
  }
}

TEST_P(LinearTest, AddsTheResidualOnce) {
  Numbers numbers(5);
  const TestWeight w = TestWeight::affine(numbers, 1, 16, 128, 4, 64);
  const std::vector<float> x = numbers.normals(2 * 128);
  const std::vector<float> residual = numbers.normals(2 * 16);
  std::vector<float> expected = run(*ops_, w.source(), x, 2);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = residual[i] + expected[i];
  expect_same_bits(run(*ops_, w.source(), x, 2, residual), expected);

  const LinearHandle weight = ops_->prepare_linear(w.source());
  Floats in(*ops_, 2, 128, x);
  Floats stream(*ops_, 2, 16, residual);
  const LinearParams::Target in_place{weight.get(), stream.view(), stream.view()};
  ops_->linear({in.view(), {&in_place, 1}});
  expect_same_bits(stream.values(), expected);
}

TEST_P(LinearTest, TargetsShareOneInputAndOneBuffer) {
  // Three targets of different layouts write column ranges of one matrix.
  Numbers numbers(6);
  const TestWeight a = TestWeight::affine(numbers, 1, 5, 256, 4, 64);
  const TestWeight b = TestWeight::affine(numbers, 1, 3, 256, 8, 128);
  const TestWeight c = TestWeight::dense(numbers, 1, 4, 256, DType::kF16);
  const std::vector<float> x = numbers.normals(2 * 256);
  Floats in(*ops_, 2, 256, x);
  Floats out(*ops_, 2, 12);
  const LinearHandle wa = ops_->prepare_linear(a.source());
  const LinearHandle wb = ops_->prepare_linear(b.source());
  const LinearHandle wc = ops_->prepare_linear(c.source());
  const std::vector<LinearParams::Target> targets = {{wa.get(), out.view().col_range(0, 5), {}},
                                                     {wb.get(), out.view().col_range(5, 3), {}},
                                                     {wc.get(), out.view().col_range(8, 4), {}}};
  ops_->linear({in.view(), targets});
  const std::vector<float> got = out.values();
  const std::vector<float> ya = run(*ops_, a.source(), x, 2);
  const std::vector<float> yb = run(*ops_, b.source(), x, 2);
  const std::vector<float> yc = run(*ops_, c.source(), x, 2);
  std::vector<float> expected;
  for (int t = 0; t < 2; ++t) {
    for (const auto& [y, cols] : {std::pair{&ya, 5}, std::pair{&yb, 3}, std::pair{&yc, 4}}) {
      const std::vector<float> row = rows_of(*y, cols, t, 1);
      expected.insert(expected.end(), row.begin(), row.end());
    }
  }
  expect_same_bits(got, expected);
}

TEST_P(LinearTest, DenseFollowsItsLanes) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (int in : {1, 2, 63, 64, 65, 100, 320, 2048}) {
      Numbers numbers(static_cast<std::uint32_t>(in));
      const TestWeight w = TestWeight::dense(numbers, 1, 4, in, dtype);
      const std::vector<float> x = numbers.normals(static_cast<std::size_t>(in));
      std::vector<float> expected;
      for (int row = 0; row < 4; ++row) expected.push_back(dense_contract_row(w.values(), x, in, row));
      SCOPED_TRACE(testing::Message() << in << " columns of " << name_of(dtype));
      const std::vector<float> got = run(*ops_, w.source(), x, 1);
      expect_same_bits(got, expected);
      EXPECT_LT(relative_error(got, w.apply(x, 1)), 1e-6);
    }
  }
}

TEST_P(LinearTest, GatedLinearEqualsItsParts) {
  Numbers numbers(8);
  const TestWeight gate = TestWeight::affine(numbers, 1, 40, 192, 4, 64);
  const TestWeight up = TestWeight::affine(numbers, 1, 40, 192, 4, 64);
  const std::vector<float> x = numbers.normals(3 * 192);
  Floats in(*ops_, 3, 192, x), gate_scratch(*ops_, 3, 40), up_scratch(*ops_, 3, 40), out(*ops_, 3, 40);
  const LinearHandle wg = ops_->prepare_linear(gate.source());
  const LinearHandle wu = ops_->prepare_linear(up.source());
  ops_->gated_linear({in.view(), wg.get(), wu.get(), gate_scratch.view(), up_scratch.view(), out.view()});
  Floats g(*ops_, 3, 40, run(*ops_, gate.source(), x, 3)), u(*ops_, 3, 40, run(*ops_, up.source(), x, 3));
  ops_->swiglu({g.view(), u.view(), g.view()});
  expect_same_bits(out.values(), g.values());

  ops_->gated_linear(
      {in.view(), wg.get(), wu.get(), gate_scratch.view(), up_scratch.view(), gate_scratch.view()});
  expect_same_bits(gate_scratch.values(), g.values());
}

TEST_P(LinearTest, FewRowsFollowTheDefinitionAtEveryWidth) {
  // Rows of one slice and of eight, even and odd numbers of groups, slices of unequal length, rows so long
  // that blocks of a GPU share them; row tiles that are whole, odd in number, or cut off.
  Numbers numbers(14);
  for (const auto& [out, in] : {std::pair{48, 64}, std::pair{41, 576}, std::pair{80, 2048},
                                std::pair{33, 2112}, std::pair{2117, 5120}, std::pair{100, 17408}}) {
    for (const int bits : {4, 8}) {
      const TestWeight w = TestWeight::affine(numbers, 1, out, in, bits, 64);
      for (const int rows : {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 31, 40}) {
        if (in > 2112 && rows > 17) continue;
        SCOPED_TRACE(testing::Message()
                     << out << " x " << in << ", " << bits << " bits, " << rows << " rows");
        const std::vector<float> x =
            numbers.normals(static_cast<std::size_t>(rows) * static_cast<std::size_t>(in));
        expect_same_bits(run(*ops_, w.source(), x, rows), run(*definition_, w.source(), x, rows));
      }
    }
  }
}

TEST_P(LinearTest, GatedLinearOfFewRowsEqualsItsParts) {
  Numbers numbers(15);
  for (const auto& [n, in] : {std::pair{40, 192}, std::pair{2064, 2048}, std::pair{72, 5184}}) {
    const TestWeight gate = TestWeight::affine(numbers, 1, n, in, 4, 64);
    const TestWeight up = TestWeight::affine(numbers, 1, n, in, 4, 64);
    const LinearHandle wg = ops_->prepare_linear(gate.source()), wu = ops_->prepare_linear(up.source());
    for (const int rows : {1, 4, 5, 8, 9, 12, 13, 16, 17}) {
      SCOPED_TRACE(testing::Message() << n << " x " << in << ", " << rows << " rows");
      const std::vector<float> x =
          numbers.normals(static_cast<std::size_t>(rows) * static_cast<std::size_t>(in));
      Floats in_rows(*ops_, rows, in, x), gates(*ops_, rows, n), ups(*ops_, rows, n), out(*ops_, rows, n);
      ops_->gated_linear({in_rows.view(), wg.get(), wu.get(), gates.view(), ups.view(), out.view()});
      Floats g(*definition_, rows, n, run(*definition_, gate.source(), x, rows));
      Floats u(*definition_, rows, n, run(*definition_, up.source(), x, rows));
      definition_->swiglu({g.view(), u.view(), g.view()});
      expect_same_bits(out.values(), g.values());
    }
  }
}

MERERUN_FOR_ALL_BACKENDS(LinearTest);

class EmbedTest : public OpTest {
 protected:
  static std::vector<float> run(Ops& ops, const LinearSource& source, const std::vector<std::int32_t>& ids) {
    const LinearHandle weight = ops.prepare_embedding(source);
    const int rows = static_cast<int>(ids.size());
    Ints in(ops, 1, rows, ids);
    Floats out(ops, rows, source.in);
    ops.embed_rows({in.view(), weight.get(), out.view()});
    return out.values();
  }
};

/// Codes of one row given as words, repeated to 32 elements or more, read through scale 1 and bias 0.
struct PackedRow {
  int bits;
  std::vector<std::uint32_t> words;
  std::vector<int> codes;
};

std::vector<int> single(int count, int at, int value) {
  std::vector<int> codes(static_cast<std::size_t>(count), 0);
  codes[static_cast<std::size_t>(at)] = value;
  return codes;
}

std::vector<int> counting(int count, int modulus) {
  std::vector<int> codes;
  for (int i = 0; i < count; ++i) codes.push_back(i % modulus);
  return codes;
}

TEST_P(EmbedTest, ReadsThePackingVectors) {
  const std::vector<PackedRow> rows = {
      {4, {0x87654321}, {1, 2, 3, 4, 5, 6, 7, 8}},
      {4, {0xC3D2E10F}, {15, 0, 1, 14, 2, 13, 3, 12}},
      {2, {0xE4E4E4E4}, counting(16, 4)},
      {8, {0x04030201}, {1, 2, 3, 4}},
      {3, {0x88FAC688, 0xC688FAC6, 0xFAC688FA}, counting(32, 8)},
      {3, {0xC0000000, 0x00000001, 0x00000000}, single(32, 10, 7)},
      {3, {0x00000000, 0x80000000, 0x00000003}, single(32, 21, 7)},
      {5, {0x8A418820, 0xC5A92839, 0xCA307B9A, 0x38BDAB49, 0xFFBBCDEB}, counting(32, 32)},
      {5, {0xC0000000, 0x00000007, 0, 0, 0}, single(32, 6, 31)},
      {6, {0x440C2040, 0xA2481C61, 0x3CE34C2C}, counting(16, 16)},
      {6, {0xC0000000, 0x0000000F, 0}, single(16, 5, 63)},
  };
  const float one = 1, zero = 0;
  for (const PackedRow& row : rows) {
    std::vector<std::uint32_t> words;
    std::vector<float> expected;
    while (expected.size() < 32) {
      words.insert(words.end(), row.words.begin(), row.words.end());
      expected.insert(expected.end(), row.codes.begin(), row.codes.end());
    }
    LinearSource source{.name = "packed",
                        .format = WeightFormat::kAffine,
                        .experts = 1,
                        .out = 1,
                        .in = 32,
                        .expert_stride = 0,
                        .bits = row.bits,
                        .group = 32,
                        .dtype = DType::kF32,
                        .weight = words.data(),
                        .scales = &one,
                        .biases = &zero};
    SCOPED_TRACE(testing::Message() << row.bits << " bits, first word " << row.words[0]);
    expect_same_bits(run(*ops_, source, {0}), expected);
    // The same codes through the linear: a one-hot input of 1 returns each code.
    for (int i = 0; i < 32; i += 5) {
      std::vector<float> x(32, 0.0f);
      x[static_cast<std::size_t>(i)] = 1;
      Floats in(*ops_, 1, 32, x), out(*ops_, 1, 1);
      const LinearHandle weight = ops_->prepare_linear(source);
      const LinearParams::Target target{weight.get(), out.view(), {}};
      ops_->linear({in.view(), {&target, 1}});
      EXPECT_NEAR(out.values()[0], expected[static_cast<std::size_t>(i)], 1e-4) << i;
    }
  }
}

TEST_P(EmbedTest, DequantisesWithOneFma) {
  Numbers numbers(11);
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    const TestWeight w = TestWeight::affine(numbers, 1, 7, 128, bits, 64);
    std::vector<float> expected;
    for (int id : {6, 0, 3, 3}) {
      for (int i = 0; i < 128; ++i) {
        const auto side = static_cast<std::size_t>(id * 2 + i / 64);
        expected.push_back(std::fma(w.scale(side),
                                    static_cast<float>(w.codes()[static_cast<std::size_t>(id * 128 + i)]),
                                    w.bias(side)));
      }
    }
    expect_same_bits(run(*ops_, w.source(), {6, 0, 3, 3}), expected);
  }
}

TEST_P(EmbedTest, WidensDenseRows) {
  Numbers numbers(12);
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const TestWeight w = TestWeight::dense(numbers, 1, 5, 33, dtype);
    std::vector<float> expected;
    for (int id : {4, 1}) {
      for (int i = 0; i < 33; ++i)
        expected.push_back(static_cast<float>(w.values()[static_cast<std::size_t>(id * 33 + i)]));
    }
    expect_same_bits(run(*ops_, w.source(), {4, 1}), expected);
  }
}

MERERUN_FOR_ALL_BACKENDS(EmbedTest);

}  // namespace
}  // namespace mererun
