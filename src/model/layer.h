#pragma once

#include <functional>
#include <span>

#include "cache/verify_transaction.h"
#include "kernels/ops.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/weights.h"

namespace mererun {

/// Observation points for tests and inspection. A hook that is empty costs one branch a layer.
struct DecoderHooks {
  /// The residual before layer 0 (layer = -1) and after each layer.
  std::function<void(int layer, TensorView residual)> residual;
  /// The experts each row chose, and their weights.
  std::function<void(int layer, TensorView ids, TensorView weights)> routed;
  /// Experts to take instead of the router's choice, [T, Ea] i32 ascending; an empty view: the router's own.
  std::function<TensorView(int layer, int rows)> forced_experts;
  /// Sparse attention: the blocks that rows from `first_row` on attend to, [n, K] i32; rows before it attend
  /// to everything.
  std::function<void(int layer, int first_row, TensorView blocks)> selected;
  /// The n-gram table's rows of all tokens of a pass, token after token.
  std::function<void(std::span<const std::int64_t> rows)> table_rows;
};

/// What the parts of a layer share during one pass of `rows` rows.
struct PassContext {
  Ops& ops;
  const ModelConfig& config;
  const Activations& activations;
  RopeView rope;
  int rows = 0;
  const DecoderHooks* hooks = nullptr;
};

/// Consecutive rows of one sequence in a pass, starting at the sequence's committed length.
struct PassSegment {
  SequenceState* state = nullptr;
  /// Set: a verification, the state stays until the transaction commits. Null: rows are committed as they go.
  VerifyTransaction* transaction = nullptr;
  int first_row = 0;
  int rows = 0;
};

/// Consecutive rows of one sequence in an attention layer.
struct AttentionSegment {
  int first_row = 0;
  int rows = 0;
  int first_position = 0;
  KvLayerView cache;
};

/// Consecutive rows of one sequence in a DeltaNet layer.
struct DeltaSegment {
  int first_row = 0;
  int rows = 0;
  TensorView state;               // [Nv * Dk, Dv]
  TensorView window;              // [K - 1, C]
  const DeltaLog* log = nullptr;  // set: verify (state kept, rows logged); null: state and window advance
};

DeltaShape delta_shape(const ModelConfig& config);
StateGeometry state_geometry(const ModelConfig& config, bool draft_head);

// A sublayer reads `normed` and writes sublayer_out = sublayer_base + its output (model/activations.h).

/// o_proj(attention(q, k, v of normed)). Source: model-math "Full attention layer".
void run_attention(const PassContext& pass, const AttentionWeights& weights,
                   std::span<const AttentionSegment> segments);
enum class Queries { kPrepare, kLeaveOut };

/// Norms and rotates a segment's projected queries and keys, and appends keys and values.
void prepare_attention(const PassContext& pass, const AttentionWeights& weights,
                       const AttentionSegment& segment, Queries queries = Queries::kPrepare);
/// Projects normed to keys and values alone and appends them: what later rows need of rows whose own output
/// nobody reads.
void append_keys(const PassContext& pass, const AttentionWeights& weights, const AttentionSegment& segment);
/// Attention of a segment's rows to every position up to their own.
void attend_dense(const PassContext& pass, const AttentionSegment& segment);
/// out_proj(gated delta rule of normed). Source: model-math "Gated DeltaNet layer".
void run_delta_net(const PassContext& pass, const DeltaNetWeights& weights,
                   std::span<const DeltaSegment> segments);

/// down(silu(gate normed) * up normed). Source: model-math "Feed-forward, dense".
void run_mlp(const PassContext& pass, const MlpWeights& weights);

/// Routed experts and shared expert of normed. Source: model-math "Feed-forward, MoE".
void run_moe(const PassContext& pass, const MoeWeights& weights, int layer, bool normalise);

/// The feed-forward half of a layer: run_mlp or run_moe.
void run_feed_forward(const PassContext& pass, const LayerWeights& layer, int index, bool normalise);

/// normed = rms_norm(residual; weight).
void run_norm(const PassContext& pass, const DeviceTensor& weight);

}  // namespace mererun
