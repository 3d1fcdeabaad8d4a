#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/backends.h"
#include "tests/kernels/op_data.h"

namespace mererun {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class ElementwiseTest : public OpTest {
 protected:
  static std::vector<std::int32_t> argmax(Ops& ops, const std::vector<float>& logits, int rows) {
    const int cols = static_cast<int>(logits.size()) / rows;
    Floats in(ops, rows, cols, logits);
    Ints ids(ops, 1, rows);
    ops.argmax_rows({in.view(), ids.view()});
    return ids.values();
  }
};

TEST_P(ElementwiseTest, SwigluMultipliesTheActivatedGate) {
  Numbers numbers(1);
  const std::vector<float> g = numbers.normals(3 * 37, 3), u = numbers.normals(3 * 37);
  std::vector<double> expected;
  for (std::size_t i = 0; i < g.size(); ++i)
    expected.push_back(g[i] / (1 + std::exp(-static_cast<double>(g[i]))) * u[i]);
  const auto run = [&](Ops& ops) {
    Floats gate(ops, 3, 37, g), up(ops, 3, 37, u), out(ops, 3, 37);
    ops.swiglu({gate.view(), up.view(), out.view()});
    return out.values();
  };
  const std::vector<float> got = run(*ops_);
  EXPECT_LT(relative_error(got, expected), 2e-7);
  expect_same_bits(got, run(*definition_));

  Floats gate(*ops_, 3, 37, g), up(*ops_, 3, 37, u);
  ops_->swiglu({gate.view(), up.view(), up.view()});
  expect_same_bits(up.values(), got);
}

TEST_P(ElementwiseTest, AddRowsMayWriteInPlace) {
  Floats a(*ops_, 2, 3, {1, 2, 3, 4, 5, 0x1p24f}), b(*ops_, 2, 3, {10, 20, 30, 40, 50, 1}), out(*ops_, 2, 3);
  ops_->add_rows({a.view(), b.view(), out.view()});
  const std::vector<float> expected = {11, 22, 33, 44, 55, 0x1p24f};
  expect_same_bits(out.values(), expected);
  ops_->add_rows({a.view(), b.view(), a.view()});
  expect_same_bits(a.values(), expected);
}

TEST_P(ElementwiseTest, ArgmaxTakesTheLowestIndexOnTies) {
  EXPECT_EQ(argmax(*ops_, {1, 3, 3, 2, 5, 5, 5, 5, -1, -2, -1, -4}, 3), (std::vector<std::int32_t>{1, 0, 0}));
  EXPECT_EQ(argmax(*ops_, {-0.0f, 0.0f, -kInf, -kInf}, 2), (std::vector<std::int32_t>{0, 0}));
}

TEST_P(ElementwiseTest, ArgmaxReportsPlusInfinity) {
  EXPECT_EQ(argmax(*ops_, {1, kInf, kInf, kInf, 0, 2, 1, 2, -kInf}, 3),
            (std::vector<std::int32_t>{-1, -1, 1}));
}

TEST_P(ElementwiseTest, ArgmaxReportsNan) {
  EXPECT_EQ(argmax(*ops_, {kNan, 1, 2, 1, kNan, 2, 1, 2, kNan, 0, 1, 2}, 4),
            (std::vector<std::int32_t>{-1, -1, -1, 2}));
}

TEST_P(ElementwiseTest, ArgmaxFindsTiesAcrossAWideRow) {
  for (int n : {1, 7, 16, 511, 4099}) {
    Numbers numbers(static_cast<std::uint32_t>(n));
    std::vector<float> logits = numbers.normals(static_cast<std::size_t>(n));
    const auto first = static_cast<std::size_t>(n / 3);
    logits[first] = 100;
    logits.back() = 100;
    EXPECT_EQ(argmax(*ops_, logits, 1)[0], static_cast<std::int32_t>(first)) << n;
    logits.back() = kNan;
    EXPECT_EQ(argmax(*ops_, logits, 1)[0], -1) << n;
  }
}

MERERUN_FOR_ALL_BACKENDS(ElementwiseTest);

}  // namespace
}  // namespace mererun
