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

/// Consecutive rows of one sequence in an attention layer.
struct AttentionSegment {
  int first_row = 0;
  int rows = 0;
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

/// residual += o_proj(attention(q, k, v of normed)). Source: model-math "Full attention layer".
void run_attention(const PassContext& pass, const AttentionWeights& weights,
                   std::span<const AttentionSegment> segments);

/// residual += out_proj(gated delta rule of normed). Source: model-math "Gated DeltaNet layer".
void run_delta_net(const PassContext& pass, const DeltaNetWeights& weights,
                   std::span<const DeltaSegment> segments);

/// residual += down(silu(gate normed) * up normed). Source: model-math "Feed-forward, dense".
void run_mlp(const PassContext& pass, const MlpWeights& weights);

/// residual += routed experts and shared expert of normed. Source: model-math "Feed-forward, MoE".
void run_moe(const PassContext& pass, const MoeWeights& weights, int layer, bool normalise);

/// The feed-forward half of a layer: norm, then run_mlp or run_moe.
void run_feed_forward(const PassContext& pass, const LayerWeights& layer, int index, bool normalise);

/// normed = rms_norm(residual; weight).
void run_norm(const PassContext& pass, const DeviceTensor& weight);

}  // namespace mererun
