#pragma once

#include "kernels/linear.h"
#include "tensor/tensor_view.h"

namespace mererun {

/// Chooses the experts of each row: the `k` largest logits (value descending, id ascending on ties), written
/// in ascending id with their weights.
///
/// weights: exp(l_i - m) / sum over the chosen, terms in ascending id (normalise), else over all experts.
/// A NaN logit never wins; a row with fewer than k numbers gets weight NaN, so that the error surfaces.
struct RouteExpertsParams {
  TensorView logits;      // [T, E] f32
  TensorView forced_ids;  // [T, k] i32 ascending, or empty: take these instead of the top k (golden tests)
  bool normalise = true;
  TensorView ids;      // out [T, k] i32, ascending
  TensorView weights;  // out [T, k] f32
};

/// The expert that every row has beside those it chose; without weights there is none.
///
/// Equals gated_linear into gate_scratch and linear into out_scratch; a backend may fuse and leave the
/// scratch views untouched.
struct SharedExpert {
  const LinearWeight* gate = nullptr;  // [F, H]
  const LinearWeight* up = nullptr;    // [F, H]
  const LinearWeight* down = nullptr;  // [H, F]
  TensorView logits;                   // [T, 1] f32, of its share
  TensorView gate_scratch;             // [T, F] f32
  TensorView up_scratch;               // [T, F] f32
  TensorView out_scratch;              // [T, H] f32

  bool empty() const { return gate == nullptr; }
};

/// Routed experts, gated shared expert and residual of each row:
/// acc = fma(w_e, down_e(silu(gate_e x) ⊙ up_e x), acc) in ascending expert id from +0;
/// acc = fma(sigmoid(shared logit), shared expert of x, acc); out = residual + acc.
/// A row's bits do not depend on which experts other rows chose.
struct ExpertMlpParams {
  TensorView x;                        // [T, H] f32
  TensorView ids;                      // [T, k] i32, ascending
  TensorView weights;                  // [T, k] f32
  const LinearWeight* gate = nullptr;  // stack of E [I, H]
  const LinearWeight* up = nullptr;    // stack of E [I, H]
  const LinearWeight* down = nullptr;  // stack of E [H, I]
  SharedExpert shared;                 // or empty
  TensorView residual;                 // [T, H] f32
  TensorView out;                      // [T, H] f32, may be residual
};

}  // namespace mererun
