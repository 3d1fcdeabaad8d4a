#pragma once

#include "base/f64_trig.h"

namespace mererun {

/// Inverse frequency of rotary pair i: 1 / theta^(2i / rotary_dims), every step rounded to f32 (the exponent,
/// the power, the reciprocal). The angle of position p is the f32 product p * frequency. Source: `1.0 / (base
/// ** (arange(0, dim, 2).float() / dim))` of the reference implementations.
constexpr float rope_inverse_frequency(float theta, int i, int rotary_dims) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dims);
  return 1.0f / f32_pow(theta, exponent);
}

}  // namespace mererun
