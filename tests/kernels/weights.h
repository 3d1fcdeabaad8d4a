#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensor/linear_source.h"
#include "tests/kernels/op_data.h"

namespace mererun {

inline std::uint16_t f32_to_f16_normal(float x) {  // for |x| in [2^-14, 65504] with at most 10 fraction bits
  const auto u = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>(((u >> 16) & 0x8000u) | ((((u >> 23) & 0xffu) - 112) << 10) |
                                    ((u >> 13) & 0x3ffu));
}

/// Owns the arrays of one LinearSource, and the weight it stands for in double.
class TestWeight {
 public:
  /// Random codes, scales of both signs, biases that centre the values.
  static TestWeight affine(Numbers& numbers, int experts, int out, int in, int bits, int group,
                           DType dtype = DType::kBF16) {
    TestWeight w;
    w.source_ = {.name = "test",
                 .format = WeightFormat::kAffine,
                 .experts = experts,
                 .out = out,
                 .in = in,
                 .expert_stride = 0,
                 .bits = bits,
                 .group = group,
                 .dtype = dtype};
    const std::size_t rows = static_cast<std::size_t>(experts) * static_cast<std::size_t>(out);
    w.weight_.assign(rows * static_cast<std::size_t>(in * bits / 8), 0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (int g = 0; g < in / group; ++g) {
        const float scale = w.append_scale(w.scales_, numbers.normal(0.02f), dtype);
        const float bias = w.append_scale(w.biases_, -scale * static_cast<float>((1 << bits) - 1) / 2, dtype);
        for (int i = g * group; i < (g + 1) * group; ++i) {
          const std::uint32_t code = numbers.below(1u << bits);
          w.set_code(r, i, code);
          w.codes_.push_back(static_cast<int>(code));
          w.values_.push_back(static_cast<double>(scale) * code + bias);
        }
      }
    }
    return w;
  }

  static TestWeight dense(Numbers& numbers, int experts, int out, int in, DType dtype) {
    TestWeight w;
    w.source_ = {.name = "test",
                 .format = WeightFormat::kDense,
                 .experts = experts,
                 .out = out,
                 .in = in,
                 .expert_stride = 0,
                 .bits = 0,
                 .group = 0,
                 .dtype = dtype};
    const std::size_t count =
        static_cast<std::size_t>(experts) * static_cast<std::size_t>(out) * static_cast<std::size_t>(in);
    for (std::size_t i = 0; i < count; ++i) {
      w.values_.push_back(w.append_scale(w.weight_, numbers.normal(0.05f), dtype));
    }
    return w;
  }

  LinearSource source() const {
    LinearSource s = source_;
    s.weight = weight_.data();
    s.scales = scales_.empty() ? nullptr : scales_.data();
    s.biases = biases_.empty() ? nullptr : biases_.data();
    return s;
  }
  const std::vector<double>& values() const { return values_; }  // [experts * out, in]
  const std::vector<int>& codes() const { return codes_; }
  std::vector<unsigned char>& weight_bytes() { return weight_; }
  float scale(std::size_t i) const { return read(scales_, i); }
  float bias(std::size_t i) const { return read(biases_, i); }

  /// weight[expert] · x[t] in double, for x of `rows` rows.
  std::vector<double> apply(const std::vector<float>& x, int rows, int expert = 0) const {
    std::vector<double> y;
    const auto in = static_cast<std::size_t>(source_.in);
    for (int t = 0; t < rows; ++t) {
      for (int n = 0; n < source_.out; ++n) {
        const std::size_t row = static_cast<std::size_t>(expert) * static_cast<std::size_t>(source_.out) +
                                static_cast<std::size_t>(n);
        double sum = 0;
        for (std::size_t i = 0; i < in; ++i)
          sum += values_[row * in + i] * x[static_cast<std::size_t>(t) * in + i];
        y.push_back(sum);
      }
    }
    return y;
  }

 private:
  static float rounded(float x, DType dtype) {
    if (dtype == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
    if (dtype == DType::kF32) return x;
    if (std::fabs(x) < 0x1p-14f) x = 0x1p-14f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffffe000u);
  }
  float append_scale(std::vector<unsigned char>& to, float x, DType dtype) {
    const float value = rounded(x, dtype);
    const std::size_t at = to.size();
    to.resize(at + size_of(dtype));
    const std::uint16_t half = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16_normal(value);
    if (dtype == DType::kF32) {
      std::memcpy(to.data() + at, &value, 4);
    } else {
      std::memcpy(to.data() + at, &half, 2);
    }
    return value;
  }
  float read(const std::vector<unsigned char>& from, std::size_t i) const {
    if (source_.dtype == DType::kF32) {
      float value = 0;
      std::memcpy(&value, from.data() + 4 * i, 4);
      return value;
    }
    std::uint16_t half = 0;
    std::memcpy(&half, from.data() + 2 * i, 2);
    return source_.dtype == DType::kBF16 ? bf16_to_f32(half) : f16_to_f32(half);
  }
  void set_code(std::size_t row, int i, std::uint32_t code) {
    const std::size_t base = row * static_cast<std::size_t>(source_.in * source_.bits / 8);
    for (int b = 0; b < source_.bits; ++b) {
      const int bit = source_.bits * i + b;
      if ((code >> b) & 1) {
        weight_[base + static_cast<std::size_t>(bit / 8)] |= static_cast<unsigned char>(1u << (bit % 8));
      }
    }
  }

  LinearSource source_;
  std::vector<unsigned char> weight_, scales_, biases_;
  std::vector<int> codes_;
  std::vector<double> values_;
};

}  // namespace mererun
