// Linear layers of the CPU backend against the reference, bit for bit.

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/cpu_variants.h"
#include "tests/kernels/op_data.h"
#include "tests/kernels/weights.h"

namespace mererun {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Rows of very different kinds: ordinary, zero, denormal, huge, negative zero, with infinities and NaN.
std::vector<float> adversarial_rows(Numbers& numbers, int rows, int cols) {
  std::vector<float> x = numbers.normals(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols));
  for (int t = 0; t < rows; ++t) {
    float* row = x.data() + static_cast<std::size_t>(t) * static_cast<std::size_t>(cols);
    const std::uint32_t kind = numbers.below(9);
    for (int i = 0; i < cols; ++i) {
      if (kind == 1) row[i] = 0.0f;
      if (kind == 2) row[i] = -0.0f;
      if (kind == 3) row[i] *= 0x1p-140f;
      if (kind == 4) row[i] *= 0x1p100f;
      if (kind == 5) row[i] *= numbers.below(2) != 0 ? 0x1p-60f : 1e6f;
    }
    if (kind == 6) row[numbers.below(static_cast<std::uint32_t>(cols))] = kInf;
    if (kind == 7) row[numbers.below(static_cast<std::uint32_t>(cols))] = kNan;
    if (kind == 8) row[numbers.below(static_cast<std::uint32_t>(cols))] = -kInf;
  }
  return x;
}

std::vector<float> run_linear(Ops& ops, const std::vector<TestWeight>& weights, const std::vector<float>& x,
                              int rows, int in, const std::vector<float>& residual) {
  const Floats input(ops, rows, in, x);
  std::vector<LinearHandle> handles;
  std::vector<Floats> outs;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    handles.push_back(ops.prepare_linear(weights[i].source()));
    const int out = handles.back()->out();
    if (i == 0 && !residual.empty()) {
      outs.emplace_back(ops, rows, out, residual);
    } else {
      outs.emplace_back(ops, rows, out);
    }
  }
  std::vector<LinearParams::Target> targets;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    targets.push_back(
        {handles[i].get(), outs[i].view(), i == 0 && !residual.empty() ? outs[i].view() : TensorView{}});
  }
  ops.linear({.x = input.view(), .targets = targets});
  std::vector<float> all;
  for (const Floats& out : outs) {
    const std::vector<float> values = out.values();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Every variant gives the reference's bits for these weights.
void expect_parity(const std::vector<TestWeight>& weights, const std::vector<float>& x, int rows, int in,
                   const std::vector<float>& residual, const std::vector<CpuVariant>& variants) {
  const auto reference = make_reference_ops();
  const std::vector<float> expected = run_linear(*reference, weights, x, rows, in, residual);
  for (const CpuVariant& variant : variants) {
    SCOPED_TRACE(variant.name + ", rows " + std::to_string(rows) + ", in " + std::to_string(in) + ", bits " +
                 std::to_string(weights[0].source().bits) + ", group " +
                 std::to_string(weights[0].source().group));
    expect_same_bits(run_linear(*variant.make(), weights, x, rows, in, residual), expected);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuLinear, EveryBitWidthAndGroupSize) {
  Numbers numbers(1);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const int in : {group, 5 * group, 2048 + 3 * group}) {
        const int rows = 1 + static_cast<int>(numbers.below(33));
        const std::vector<TestWeight> weights = {TestWeight::affine(numbers, 1, 37, in, bits, group)};
        expect_parity(weights, adversarial_rows(numbers, rows, in), rows, in, {}, cpu_variants());
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuLinear, EveryWidthUpTo33AndBeyondOnePass) {
  Numbers numbers(2);
  for (int rows = 1; rows <= 36; ++rows) {
    const int count = rows == 34 ? 63 : rows == 35 ? 64 : rows == 36 ? 147 : rows;
    const std::vector<TestWeight> weights = {TestWeight::affine(numbers, 1, 48, 2176, 4, 64)};
    expect_parity(weights, adversarial_rows(numbers, count, 2176), count, 2176, {}, cpu_isas());
    if (HasFatalFailure()) return;
  }
}

TEST(CpuLinear, OddOutputCounts) {
  Numbers numbers(3);
  for (const int out : {1, 2, 4, 15, 16, 17, 48, 96, 131}) {
    const std::vector<TestWeight> weights = {TestWeight::affine(numbers, 1, out, 192, 4, 64)};
    const std::vector<float> residual = numbers.normals(5 * static_cast<std::size_t>(out));
    expect_parity(weights, adversarial_rows(numbers, 5, 192), 5, 192, residual, cpu_variants());
    if (HasFatalFailure()) return;
  }
}

TEST(CpuLinear, ScaleTypes) {
  Numbers numbers(4);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const std::vector<TestWeight> weights = {TestWeight::affine(numbers, 1, 33, 256, 5, 32, dtype)};
    expect_parity(weights, adversarial_rows(numbers, 9, 256), 9, 256, {}, cpu_isas());
    if (HasFatalFailure()) return;
  }
}

TEST(CpuLinear, DenseRowsOfEveryTypeAndTail) {
  Numbers numbers(5);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int in : {1, 31, 64, 100, 129, 640, 2050}) {
      for (const int rows : {1, 2, 3, 8, 33}) {
        const std::vector<TestWeight> weights = {TestWeight::dense(numbers, 1, 21, in, dtype)};
        expect_parity(weights, adversarial_rows(numbers, rows, in), rows, in, {}, cpu_variants());
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CpuLinear, SeveralTargetsOfDifferentFormats) {
  Numbers numbers(6);
  for (const int rows : {1, 4, 19}) {
    std::vector<TestWeight> weights;
    weights.push_back(TestWeight::affine(numbers, 1, 100, 512, 4, 64));
    weights.push_back(TestWeight::affine(numbers, 1, 1, 512, 8, 32));
    weights.push_back(TestWeight::dense(numbers, 1, 48, 512, DType::kBF16));
    weights.push_back(TestWeight::affine(numbers, 1, 513, 512, 3, 128));
    const std::vector<float> residual = numbers.normals(static_cast<std::size_t>(rows) * 100);
    expect_parity(weights, adversarial_rows(numbers, rows, 512), rows, 512, residual, cpu_variants());
    if (HasFatalFailure()) return;
  }
}

/// Input widths of the 27B and 35B layers, and one longer than a worker keeps as byte planes; with few
/// outputs.
TEST(CpuLinear, RealInputWidths) {
  Numbers numbers(7);
  for (const int in : {512, 2048, 4096, 5120, 6144, 10240, 17408, 65600}) {
    const std::vector<TestWeight> weights = {TestWeight::affine(numbers, 1, 17, in, 4, 64)};
    for (const int rows : {1, 9}) {
      expect_parity(weights, adversarial_rows(numbers, rows, in), rows, in, {}, cpu_isas());
      if (HasFatalFailure()) return;
    }
  }
}

/// The largest code sums: every code and activation at its bound must not overflow int32.
TEST(CpuLinear, ExtremeCodes) {
  Numbers numbers(8);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    TestWeight weight = TestWeight::affine(numbers, 1, 16, 256, bits, 128);
    for (unsigned char& byte : weight.weight_bytes()) byte = 0xff;
    std::vector<float> x(2 * 256, 3.5f);
    for (std::size_t i = 256; i < x.size(); ++i) x[i] = -3.5f;
    expect_parity({weight}, x, 2, 256, {}, cpu_isas());
    if (HasFatalFailure()) return;
  }
}

/// The largest sums of a lone row whose codes are split into bytes (isa/bytes.h): 32512 makes the divisor 1,
/// and 127 * 256 - 128 and its like have the extremes of both halves.
TEST(CpuLinear, ExtremeHalvesOfALoneRow) {
  Numbers numbers(11);
  TestWeight weight = TestWeight::affine(numbers, 1, 16, 256, 4, 128);
  for (unsigned char& byte : weight.weight_bytes()) byte = 0xff;
  for (const float code : {32384.0f, -32384.0f, 32511.0f, -32512.0f, -128.0f, 127.0f}) {
    std::vector<float> x(256, code);
    x[0] = x[128] = 32512.0f;
    expect_parity({weight}, x, 1, 256, {}, cpu_isas());
    if (HasFatalFailure()) return;
  }
}

std::vector<float> run_gated(Ops& ops, const TestWeight& gate, const TestWeight& up,
                             const std::vector<float>& x, int rows, int in, int out) {
  const Floats input(ops, rows, in, x);
  const Floats a(ops, rows, out), b(ops, rows, out), y(ops, rows, out);
  const LinearHandle g = ops.prepare_linear(gate.source());
  const LinearHandle u = ops.prepare_linear(up.source());
  GatedLinearParams p;
  p.x = input.view();
  p.gate = g.get();
  p.up = u.get();
  p.gate_scratch = a.view();
  p.up_scratch = b.view();
  p.out = y.view();
  ops.gated_linear(p);
  return y.values();
}

TEST(CpuLinear, GatedFeedForward) {
  Numbers numbers(9);
  const auto reference = make_reference_ops();
  for (const auto& [up_bits, up_group] : {std::pair(6, 32), std::pair(4, 32), std::pair(4, 64)}) {
    for (const int rows : {1, 2, 8, 9, 32, 70}) {
      const TestWeight gate = TestWeight::affine(numbers, 1, 75, 320, 4, 64);
      const TestWeight up = TestWeight::affine(numbers, 1, 75, 320, up_bits, up_group);
      const std::vector<float> x = adversarial_rows(numbers, rows, 320);
      const std::vector<float> expected = run_gated(*reference, gate, up, x, rows, 320, 75);
      for (const CpuVariant& variant : cpu_variants()) {
        SCOPED_TRACE(variant.name + ", rows " + std::to_string(rows) + ", up of " + std::to_string(up_bits) +
                     " bits");
        expect_same_bits(run_gated(*variant.make(), gate, up, x, rows, 320, 75), expected);
      }
    }
  }
}

TEST(CpuLinear, EmbeddingRows) {
  Numbers numbers(10);
  const auto reference = make_reference_ops();
  std::vector<TestWeight> weights;
  for (const int bits : {2, 3, 4, 5, 6, 8})
    weights.push_back(TestWeight::affine(numbers, 1, 50, 192, bits, 64));
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    weights.push_back(TestWeight::dense(numbers, 1, 50, 100, dtype));
    weights.push_back(TestWeight::affine(numbers, 1, 50, 96, 4, 32, dtype));
  }
  const auto run = [](Ops& ops, const TestWeight& weight) {
    const std::vector<std::int32_t> ids = {0, 49, 7, 7, 31};
    const LinearHandle handle = ops.prepare_embedding(weight.source());
    const Ints which(ops, 1, 5, ids);
    const Floats out(ops, 5, handle->in());
    ops.embed_rows({.ids = which.view(), .weight = handle.get(), .out = out.view()});
    return out.values();
  };
  for (const TestWeight& weight : weights) {
    for (const CpuVariant& variant : cpu_isas()) {
      SCOPED_TRACE(variant.name);
      expect_same_bits(run(*variant.make(), weight), run(*reference, weight));
    }
  }
}

}  // namespace
}  // namespace mererun
