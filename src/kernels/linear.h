#pragma once

#include <memory>
#include <span>

#include "tensor/linear_source.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// A linear layer's weight in the form a backend computes with. Made by Ops::prepare_linear, immutable.
class LinearWeight {
 public:
  LinearWeight(int experts, int out, int in) : experts_(experts), out_(out), in_(in) {}
  virtual ~LinearWeight() = default;
  LinearWeight(const LinearWeight&) = delete;
  LinearWeight& operator=(const LinearWeight&) = delete;

  int experts() const { return experts_; }
  int out() const { return out_; }
  int in() const { return in_; }
  /// Bytes the backend holds for it beyond the checkpoint's mapping.
  virtual std::size_t owned_bytes() const = 0;

 private:
  int experts_, out_, in_;
};

using LinearHandle = std::shared_ptr<const LinearWeight>;

/// Looks up embedding rows: out[t] = weight[ids[t]], widened or dequantised as fma(s, q, b).
struct EmbedRowsParams {
  TensorView ids;                        // [1, T]  i32, each in [0, V)
  const LinearWeight* weight = nullptr;  // [V, H], of prepare_embedding
  TensorView out;                        // [T, H]  f32
};

/// Row-wise linear layers that share one input: out_j[t] = weight_j · x[t], or residual_j[t] + weight_j ·
/// x[t].
///
/// Affine weights follow the quantised-linear contract, dense ones the 32-lane fma contract
/// (docs/exactness.md). Width-invariant. `out` must not alias `x`; it may be the same view as `residual`.
struct LinearParams {
  struct Target {
    const LinearWeight* weight = nullptr;  // [Out, In], experts = 1
    TensorView out;                        // [T, Out] f32
    TensorView residual;                   // [T, Out] f32, or empty
  };
  TensorView x;  // [T, In] f32
  std::span<const Target> targets;
};

/// Single output rows of a linear layer: out[j] = weight[rows[j]] · x, with the bits that `linear` gives
/// them.
struct SelectedRowsParams {
  TensorView x;                          // [1, In] f32
  const LinearWeight* weight = nullptr;  // [Out, In], experts = 1
  TensorView rows;                       // [1, n] i32, each in [0, Out)
  TensorView scratch;                    // [1, Out] f32, overwritten; must not alias x or out
  TensorView out;                        // [1, n] f32
};

/// SwiGLU feed-forward input half: out[t] = silu(gate · x[t]) ⊙ (up · x[t]).
/// Equals linear (gate, up) into the scratch views followed by swiglu; a backend may fuse and leave them
/// untouched.
struct GatedLinearParams {
  TensorView x;                        // [T, In] f32
  const LinearWeight* gate = nullptr;  // [F, In]
  const LinearWeight* up = nullptr;    // [F, In]
  TensorView gate_scratch;             // [T, F] f32
  TensorView up_scratch;               // [T, F] f32
  TensorView out;                      // [T, F] f32, may be gate_scratch
};

/// out[t] = silu(gate[t]) ⊙ up[t].  All [T, F] f32; out may alias either input.
struct SwigluParams {
  TensorView gate, up, out;
};

}  // namespace mererun
