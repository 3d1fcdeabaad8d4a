#pragma once

#include <cstddef>

#include "tensor/tensor_view.h"

namespace mererun {

/// Positions per KV page. Attention tiles (64) and segments (1024) are absolute and do not depend on it.
inline constexpr int kKvPagePositions = 256;
/// Positions that share one pooled index key (sparse attention only), and such blocks per page.
inline constexpr int kIndexBlockPositions = 4;
inline constexpr int kIndexPageBlocks = kKvPagePositions / kIndexBlockPositions;

/// One layer's keys and values, spread over pages. Position p lives in page p / 256, slot p % 256.
/// Inside a page, at the given byte offsets: codes [kv_heads][256][head_dim] i16, scales [kv_heads][256] f32;
/// a value is float(code) * scale. Layers with an indexer also hold, per page, index keys: codes
/// [256][index_dim] i16, scales [256] f32, and pooled keys, channel-major: [index_dim][64] f32.
struct KvLayerView {
  std::byte* const* pages = nullptr;  // page base addresses, in memory the backend reads
  int page_count = 0;
  std::size_t key_codes = 0, key_scales = 0, value_codes = 0, value_scales = 0;  // byte offsets
  int kv_heads = 0;
  int head_dim = 0;
  std::size_t index_codes = 0, index_scales = 0, index_pooled = 0;  // byte offsets
  int index_dim = 0;                                                // 0: no indexer
};

/// Cosines and sines by position, built once on the host (model/rope_table).
struct RopeView {
  TensorView cos;  // [positions, rotary_dims / 2] f32
  TensorView sin;  // same
  int rotary_dims = 0;
};

/// Per-head query and key norm, rotation of the first `rotary_dims` dims (pairs i, i + rotary_dims / 2), and
/// the append of keys and values to the cache.
///
/// q_gate holds, per query head, head_dim query values then head_dim gate values. Keys (after norm and
/// rotation) and values are rounded to i16 per head vector: d = absmax / 32512, code = rne(x / d). Without
/// q_gate and q only keys and values are appended. Source: model-math "full attention" steps 1 to 3.
struct AttentionPrepareParams {
  TensorView q_gate;     // [T, heads * 2 * head_dim] f32, or empty
  TensorView k;          // [T, kv_heads * head_dim] f32
  TensorView v;          // [T, kv_heads * head_dim] f32
  TensorView q_norm;     // [1, head_dim] f32
  TensorView k_norm;     // [1, head_dim] f32
  TensorView positions;  // [1, T] i32, consecutive
  RopeView rope;
  float eps = 1e-6f;
  int heads = 0;
  TensorView q;       // out [T, heads * head_dim] f32; empty with q_gate
  KvLayerView cache;  // appended at positions

  /// Query heads to prepare.
  int query_heads() const { return q_gate.empty() ? 0 : heads; }
};

/// Causal attention of rows at `positions` over the cache (own key included), then the sigmoid gate:
/// out = (softmax(q · K^T * scale) V) ⊙ sigmoid(gate).
///
/// Per tile of 64 absolute positions: scores by fma over d ascending, times the cache scale, times
/// scale_log2e; p = exp2(s - m); values by fma over keys ascending; tiles fold left inside segments of 16
/// tiles, segments fold left. Width-invariant: a row sees positions 0..p only. Source: FlashAttention-2 (Dao
/// 2023), online softmax.
struct AttendParams {
  TensorView q;          // [T, heads * head_dim] f32
  TensorView q_gate;     // [T, heads * 2 * head_dim] f32: the gate halves are read
  TensorView positions;  // [1, T] i32, consecutive
  KvLayerView cache;
  int heads = 0;
  float scale_log2e = 0;  // fp32 product of 1/sqrt(head_dim) and log2(e)
  TensorView out;         // [T, heads * head_dim] f32
};

}  // namespace mererun
