#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/ops.h"

namespace mererun {

/// A matrix in a backend's memory between guard bytes; reading it back checks the guards.
template <typename T>
class DeviceMatrix {
 public:
  DeviceMatrix(Ops& ops, int rows, int cols, const std::vector<T>& values)
      : ops_(&ops), rows_(rows), cols_(cols), buffer_(ops.allocate(bytes() + 2 * kGuard)) {
    EXPECT_EQ(values.size(), count());
    std::vector<unsigned char> all(bytes() + 2 * kGuard, kFill);
    if (!values.empty()) std::memcpy(all.data() + kGuard, values.data(), bytes());
    ops.upload(buffer_.data(), all.data(), all.size());
  }
  /// Filled with zeros.
  DeviceMatrix(Ops& ops, int rows, int cols)
      : DeviceMatrix(ops, rows, cols,
                     std::vector<T>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols))) {}

  TensorView view() const {
    const DType dtype = std::is_same_v<T, float> ? DType::kF32 : DType::kI32;
    return make_view(static_cast<unsigned char*>(buffer_.data()) + kGuard, dtype, rows_, cols_);
  }
  std::vector<T> values() const {
    std::vector<unsigned char> all(bytes() + 2 * kGuard);
    ops_->synchronize();
    ops_->download(all.data(), buffer_.data(), all.size());
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[i], kFill) << "guard byte " << i << " before the matrix";
      EXPECT_EQ(all[kGuard + bytes() + i], kFill) << "guard byte " << i << " after the matrix";
    }
    std::vector<T> result(count());
    if (!result.empty()) std::memcpy(result.data(), all.data() + kGuard, bytes());
    return result;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kFill = 0xa5;
  std::size_t count() const { return static_cast<std::size_t>(rows_) * static_cast<std::size_t>(cols_); }
  std::size_t bytes() const { return count() * sizeof(T); }

  Ops* ops_;
  int rows_, cols_;
  Buffer buffer_;
};

/// Positions of `count` rows.
inline std::vector<std::int32_t> consecutive(int first, int count) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

using Floats = DeviceMatrix<float>;
using Ints = DeviceMatrix<std::int32_t>;

/// The same numbers on every platform for one seed.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : engine_(seed) {}
  /// Roughly normal, mean 0.
  float normal(float deviation = 1) {
    float sum = 0;
    for (int i = 0; i < 6; ++i) sum += static_cast<float>(engine_() >> 8) * 0x1p-24f - 0.5f;
    return sum * 1.4142f * deviation;
  }
  std::vector<float> normals(std::size_t count, float deviation = 1) {
    std::vector<float> all(count);
    for (float& x : all) x = normal(deviation);
    return all;
  }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(engine_()) % limit; }

 private:
  std::mt19937 engine_;
};

inline std::vector<float> rows_of(const std::vector<float>& matrix, int cols, int first, int count) {
  const auto from = matrix.begin() + static_cast<std::ptrdiff_t>(first) * cols;
  return {from, from + static_cast<std::ptrdiff_t>(count) * cols};
}

/// Equal bits, any NaN equal to any other; reports the first difference.
inline void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << "element " << i << " of " << got.size() << ": " << got[i] << " and " << expected[i];
  }
}

/// |got - expected| / |expected| over all elements, Euclidean norms.
inline double relative_error(const std::vector<float>& got, const std::vector<double>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

inline bool all_nan(const std::vector<float>& values) {
  for (float x : values) {
    if (!std::isnan(x)) return false;
  }
  return true;
}

}  // namespace mererun
