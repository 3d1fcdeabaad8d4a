#pragma once

#include "base/types.h"
#include "kernels/delta.h"

namespace mererun {

/// What the caches of one sequence must hold; derived from the model's config by model/.
struct StateGeometry {
  int attention_layers = 0;  // of the trunk
  int kv_heads = 0;          // Hkv
  int head_dim = 0;          // Dh
  int delta_layers = 0;
  DeltaShape delta;
  int hidden = 0;           // columns of a hidden row: H, or 4 H with streams
  bool draft_head = false;  // the MTP head adds one attention layer of the same heads

  int index_dim = 0;         // of sparse attention's index keys, in trunk and head; 0: dense attention
  int ngram_past = 0;        // rows that the n-gram layer's convolution looks back; 0: no such layer
  int ngram_cols = 0;        // columns of those rows
  int context_tokens = 0;    // token ids that the next n-gram needs
  TokenId context_fill = 0;  // stands for tokens before the first
};

}  // namespace mererun
