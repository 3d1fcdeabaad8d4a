#pragma once

#include "tensor/tensor_view.h"

namespace mererun {

// The n-gram embedding of Flash-Next: rows of a hashed table, gated per stream and convolved over time.
// Source: model-math "Flash-Next", n-gram embedding.

/// out[c, d] = sigmoid(g_c) · value[d], with s_c = dot(key_c, query_c) · H^-1/2 and
/// g_c = sign(s_c) · sqrt(max(|s_c|, 1e-6)), sign(0) = 0.
///
/// dot: L(H) interleaved lanes, fma ascending from +0, joined by halving (the order of the norms).
struct NgramGateParams {
  TensorView key;    // [T, 4 H] f32, normed
  TensorView query;  // [T, 4 H] f32, normed
  TensorView value;  // [T, H] f32
  TensorView out;    // [T, 4 H] f32
};

/// residual += gated + silu(conv), a causal depthwise convolution whose K taps lie `dilation` rows apart.
///
/// conv: acc = fma(w[j], input[t - dilation * (K - 1 - j)], acc), j = 0 (oldest) .. K-1, from +0; rows before
/// 0 come from `window`. Then residual = residual + (gated + silu(acc)).
struct NgramConvParams {
  TensorView inputs;    // [T, D] f32
  TensorView window;    // [dilation * (K - 1), D] f32, the inputs of the rows before, oldest first
  TensorView weight;    // [K, D] f32, oldest tap first
  TensorView gated;     // [T, D] f32
  int dilation = 1;     // rows between two taps
  TensorView residual;  // [T, D] f32, updated
};

}  // namespace mererun
