#pragma once

#include "tensor/tensor_view.h"

namespace mererun {

// The hyper-connections of Flash-Next: a residual of four parallel streams, of which each sublayer reads a
// gated mixture and to each of which it writes with a strength of its own. A row of streams is stream-major:
// element c * H + d is channel d of stream c.
// Source: Hyper-Connections (Zhu et al. 2024); model-math "Flash-Next".

/// Streams of a residual row.
inline constexpr int kStreams = 4;

/// RMS norm of each of `groups` equal runs of a row: in every run out = (x · r) · w, r of that run alone.
/// The arithmetic of a run is that of RmsNormParams.
struct GroupedRmsNormParams {
  TensorView x;       // [T, groups * n] f32
  TensorView weight;  // [1, groups * n] f32, final weight
  int groups = kStreams;
  float eps = 1e-6f;
  TensorView out;  // [T, groups * n] f32, may alias x
};

/// out = silu(x · 0.25): the low-rank half of the gate that mixes the streams.
struct StreamSiluParams {
  TensorView x;    // [T, R] f32
  TensorView out;  // [T, R] f32, may alias x
};

/// out[d] = ((a0 + a1) + (a2 + a3)) · 0.25 with a_c = sigmoid(gate[c, d]) · x[c, d].
struct MixStreamsParams {
  TensorView x;     // [T, 4 H] f32, normed streams
  TensorView gate;  // [T, 4 H] f32, logits
  TensorView out;   // [T, H] f32
};

/// streams[c, d] = fma(s_c, y[d], streams[c, d]) with s_c = 2 · sigmoid(inject[c] · 0.25).
struct AddToStreamsParams {
  TensorView y;        // [T, H] f32, a sublayer's output
  TensorView inject;   // [T, 4] f32, logits
  TensorView streams;  // [T, 4 H] f32, updated
};

}  // namespace mererun
