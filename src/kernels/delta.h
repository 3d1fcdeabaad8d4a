#pragma once

#include "kernels/norm.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// Shape of a Gated DeltaNet layer. C = 2 * key_heads * key_dim + value_heads * value_dim conv channels.
struct DeltaShape {
  int key_heads = 0;    // Nk
  int value_heads = 0;  // Nv, a multiple of Nk: value head j uses key head j / (Nv / Nk)
  int key_dim = 0;      // Dk, a multiple of 16
  int value_dim = 0;    // Dv
  int conv_taps = 0;    // K

  int key_width() const { return key_heads * key_dim; }
  int value_width() const { return value_heads * value_dim; }
  int conv_channels() const { return 2 * key_width() + value_width(); }
};

/// Causal depthwise convolution, SiLU, split, l2 norm of q and k, and the gates.
///
/// conv: acc = fma(w[j], input[t - K + 1 + j], acc), j = 0 (oldest) .. K-1, from +0; rows before 0 come from
/// `window`. q, k: x * (1 / sqrt(sum of squares + 1e-6)); q then times Dk^-1/2 rounded to f32.
/// alpha = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b).
/// Source: Gated Delta Networks (Yang et al. 2024); model-math "Gated DeltaNet" steps 2 to 5.
struct DeltaPrepareParams {
  DeltaShape shape;
  TensorView inputs;       // [T, C] f32, projected q | k | v before the convolution
  TensorView window;       // [K - 1, C] f32, the inputs of the K - 1 rows before, oldest first
  TensorView conv_weight;  // [K, C] f32, oldest tap first
  TensorView a, b;         // [T, Nv] f32
  TensorView a_log;        // [1, Nv] f32
  TensorView dt_bias;      // [1, Nv] f32
  TensorView q, k;         // out [T, Nk * Dk] f32
  TensorView v;            // out [T, Nv * Dv] f32
  TensorView alpha, beta;  // out [T, Nv] f32
};

enum class StateWrite { kStore, kKeep };

/// The gated delta rule, row after row. Per value head and value column c:
/// S = alpha * S; m = tree(S · k); u = beta * (v - m); S = fma(u, k, S); o = tree(S · q).
///
/// tree: element i of Dk goes to accumulator i mod 16, ascending, by fma from +0; accumulators join as
/// ((a0+a1)+(a2+a3)) in each run of four, then (L0+L1)+(L2+L3).
/// With kKeep the state is read and left as it was (verification); `u` and the inputs then suffice for a
/// replay.
struct DeltaStepParams {
  DeltaShape shape;
  TensorView q, k;         // [T, Nk * Dk] f32
  TensorView v;            // [T, Nv * Dv] f32
  TensorView alpha, beta;  // [T, Nv] f32
  TensorView state;        // [Nv * Dk, Dv] f32, row h * Dk + i holds S[h][i][:]
  StateWrite write = StateWrite::kStore;
  TensorView u;    // out [T, Nv * Dv] f32, or empty
  TensorView out;  // [T, Nv * Dv] f32
};

/// prepare, step and norm of the rows of one sequence, each reading what the one before it wrote. Of the outputs
/// between them only the log is left for the caller: prepare.k, prepare.alpha and step.u where step.u is not
/// empty. Contents of the others are unspecified afterwards.
struct DeltaRuleParams {
  DeltaPrepareParams prepare;
  DeltaStepParams step;
  GatedRmsNormParams norm;
};

/// Re-applies logged rows to a state: S = alpha * S; S = fma(u, k, S). The same bits as the step that logged
/// them.
struct DeltaReplayParams {
  DeltaShape shape;
  TensorView k;      // [n, Nk * Dk] f32
  TensorView u;      // [n, Nv * Dv] f32
  TensorView alpha;  // [n, Nv] f32
  TensorView state;  // [Nv * Dk, Dv] f32, updated
};

/// window = the last K - 1 rows of (window, inputs[0..n)).
struct AdvanceWindowParams {
  TensorView window;  // [K - 1, C] f32, updated
  TensorView inputs;  // [n, C] f32
};

}  // namespace mererun
