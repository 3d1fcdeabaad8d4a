#pragma once

#include "device/buffer.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace mererun {

/// Every intermediate array of a forward pass, allocated once for the widest pass. A layer's mixer and
/// feed-forward buffers share one region, since they never live together.
///
/// Bytes: 4 * max_rows * (3 H + 2 + max(delta, attention, feed-forward columns, 2 H)) + 4 * max_logit_rows *
/// V, rounded up to 64 per array; with four streams 6 H + 6 fixed columns, and the streams', the n-gram
/// layer's and the draft head's columns among those that share the region. Thread-safety: one thread at a
/// time.
class Activations {
 public:
  Activations(Ops& ops, const ModelConfig& config, int max_rows, int max_logit_rows);

  int max_rows() const { return max_rows_; }
  int max_logit_rows() const { return max_logit_rows_; }
  std::size_t size_bytes() const { return buffer_.size_bytes(); }
  /// What an arena of these limits takes, without making one.
  static std::size_t size_bytes(const ModelConfig& config, int max_rows, int max_logit_rows);

  // All f32 but for ids, positions and blocks.
  struct Delta {
    TensorView qkv, z, a, b;      // [T, C], [T, Nv Dv], [T, Nv], [T, Nv]
    TensorView q, k, v;           // [T, Nk Dk], [T, Nk Dk], [T, Nv Dv]
    TensorView alpha, beta, out;  // [T, Nv], [T, Nv], [T, Nv Dv]
  };
  struct Attention {
    TensorView q_gate, k, v, q, out;    // [T, 2 Hq Dh], [T, Hkv Dh], [T, Hkv Dh], [T, Hq Dh], [T, Hq Dh]
    TensorView index, index_q, blocks;  // sparse attention only: [T, (n + 1) Di], [T, n Di], [T, K] i32
  };
  struct FeedForward {
    TensorView gate, up;              // [T, F]
    TensorView router, ids, weights;  // [T, E], [T, Ea] i32, [T, Ea]
    TensorView shared_gate, shared;   // [T, 1], [T, H]
  };
  /// Reading four streams.
  struct Streams {
    TensorView normed, low, gate;  // [T, 4H], [T, R], [T, 4H]
  };
  struct Ngram {
    TensorView embedding, key, value, query, gated;  // [T, E], [T, 4H], [T, H], [T, 4H], [T, 4H]
  };
  struct HeadJoin {
    TensorView normed, embedding, joined;  // [T, 4H], [T, H], [T, H]
  };

  TensorView ids(int rows) const;        // [1, T] i32
  TensorView positions(int rows) const;  // [1, T] i32
  TensorView residual(int rows) const;   // [T, H], or [T, 4H] with streams
  TensorView normed(int rows) const;     // [T, H]
  TensorView fc_input(int rows) const;   // [T, 2H], input of the draft head's fc; shares the mixer region
  TensorView hidden(int rows) const;     // [T, H], output of the final norm; not with streams
  /// What a sublayer computes is sublayer_base + its output, written to sublayer_out: both the residual, or
  /// with streams nothing and an array of its own.
  TensorView sublayer_out(int rows) const;   // [T, H]
  TensorView sublayer_base(int rows) const;  // [T, H], or empty
  TensorView logits(int rows) const;         // [T, V]
  Delta delta(int rows) const;
  Attention attention(int rows) const;
  FeedForward feed_forward(int rows) const;
  // With streams only.
  TensorView inject(int rows) const;  // [T, 4]
  Streams streams(int rows) const;
  Ngram ngram(int rows) const;
  HeadJoin head_join(int rows) const;

 private:
  int max_rows_;
  int max_logit_rows_;
  ModelConfig config_;
  std::size_t shared_offset_ = 0;
  std::size_t logits_offset_ = 0;
  Buffer buffer_;
};

}  // namespace mererun
