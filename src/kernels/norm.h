#pragma once

#include "tensor/tensor_view.h"

namespace mererun {

/// Root-mean-square norm of each row: out = (x · r) · w with r = 1 / sqrt(S / n + eps), S the sum of squares.
///
/// Reduction: L interleaved lanes (256 for n >= 1024, else 32), fma ascending from +0, joined by halving.
/// Source: Zhang and Sennrich 2019, eq. 4; eps as in the checkpoint's config.
struct RmsNormParams {
  TensorView x;       // [T, n] f32
  TensorView weight;  // [1, n] f32, final weight (offset applied at load)
  float eps = 1e-6f;
  TensorView out;  // [T, n] f32, may alias x
};

enum class GateActivation { kSilu, kSigmoid };

/// Output norm of the delta rule, per head: out = ((x · r) · w) · act(z).
struct GatedRmsNormParams {
  TensorView x;       // [T, heads * dim] f32
  TensorView z;       // [T, heads * dim] f32
  TensorView weight;  // [1, dim] f32
  int heads = 0;
  float eps = 1e-6f;
  GateActivation activation = GateActivation::kSilu;
  TensorView out;  // [T, heads * dim] f32, may alias x
};

}  // namespace mererun
