#include "model/rope_table.h"

#include <algorithm>
#include <cmath>

#include "base/f64_math.h"
#include "base/f64_trig.h"
#include "kernels/rope_frequency.h"

namespace mererun {
namespace {

constexpr int kGrowth = 1024;  // the table's size is a multiple of it

/// YaRN keeps high frequencies, divides low ones by `factor`, and blends between two corners.
/// Source: Peng et al. 2023, eq. 23 to 26; corners as floor and ceil of the pair index.
void scale_yarn(const RopeConfig& c, std::vector<float>& frequencies) {
  constexpr double kTwoPi = 6.283185307179586;
  const auto corner = [&](double beta) {
    return c.rotary_dims * f64_ln(c.original_max_positions / (kTwoPi * beta)) / (2.0 * f64_ln(c.theta));
  };
  const double low = std::max(std::floor(corner(c.beta_fast)), 0.0);
  const double high = std::min(std::ceil(corner(c.beta_slow)), c.rotary_dims - 1.0);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double span = std::max(high - low, 0.001);
    const double ramp = std::clamp((static_cast<double>(i) - low) / span, 0.0, 1.0);
    const double f = frequencies[i];
    frequencies[i] = static_cast<float>(f * (1.0 - ramp) + f / c.factor * ramp);
  }
}

double amplitude_of(const RopeConfig& c) {
  if (c.scaling != RopeScaling::kYarn) return 1.0;
  return c.attention_factor.value_or(0.1 * f64_ln(c.factor) + 1.0);
}

}  // namespace

RopeTable::RopeTable(Ops& ops, const RopeConfig& config)
    : ops_(ops), rotary_dims_(config.rotary_dims), amplitude_(amplitude_of(config)) {
  for (int i = 0; i < rotary_dims_ / 2; ++i)
    frequencies_.push_back(rope_inverse_frequency(static_cast<float>(config.theta), i, rotary_dims_));
  if (config.scaling == RopeScaling::kYarn) scale_yarn(config, frequencies_);
}

void RopeTable::ensure(int positions) {
  if (positions <= positions_) return;
  // Doubling: the whole table is computed anew each time, at most twice its final size in all.
  const int target = std::max((positions + kGrowth - 1) / kGrowth * kGrowth, 2 * positions_);
  const std::size_t half = frequencies_.size();
  const std::size_t rows = static_cast<std::size_t>(target);
  std::vector<float> values(2 * rows * half);
  for (std::size_t p = 0; p < rows; ++p) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies_[i];
      const SinCos value = f64_sin_cos(angle);
      values[p * half + i] = static_cast<float>(value.cos * amplitude_);
      values[(rows + p) * half + i] = static_cast<float>(value.sin * amplitude_);
    }
  }
  Buffer table = ops_.allocate(values.size() * sizeof(float));
  ops_.upload(table.data(), values.data(), values.size() * sizeof(float));
  table_ = std::move(table);
  positions_ = target;
}

RopeView RopeTable::view() const {
  const int half = rotary_dims_ / 2;
  float* cos = table_.as<float>();
  return {make_view(cos, DType::kF32, positions_, half),
          make_view(cos + static_cast<std::int64_t>(positions_) * half, DType::kF32, positions_, half),
          rotary_dims_};
}

}  // namespace mererun
