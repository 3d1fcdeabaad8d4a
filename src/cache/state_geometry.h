#pragma once

#include "kernels/delta.h"

namespace mererun {

/// What the caches of one sequence must hold; derived from the model's config by model/.
struct StateGeometry {
  int attention_layers = 0;  // of the trunk
  int kv_heads = 0;          // Hkv
  int head_dim = 0;          // Dh
  int delta_layers = 0;
  DeltaShape delta;
  int hidden = 0;           // H
  bool draft_head = false;  // the MTP head adds one attention layer of the same heads
};

}  // namespace mererun
