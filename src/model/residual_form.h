#pragma once

#include <memory>
#include <span>

#include "model/layer.h"

namespace mererun {

/// How a family keeps its residual: what a sublayer reads of it, where the output goes, and what the output
/// matrix and the draft head see. Decoder and draft head are written once over it.
///
/// Dense and MoE: one stream, a norm before each sublayer and one at the end. Flash-Next: four streams
/// (flash_form.h). Thread-safety: one thread at a time.
class ResidualForm {
 public:
  enum class Sublayer { kMixer, kFeedForward };

  virtual ~ResidualForm() = default;

  /// Ids that a later trunk pass over `state` will probably have, behind `before` and what the state holds:
  /// what only needs ids may be fetched ahead. Nothing else changes.
  virtual void expect(const SequenceState&, std::span<const TokenId> /*before*/,
                      std::span<const TokenId> /*ids*/) {}
  /// Before any op of a trunk pass: what only needs the token ids.
  virtual void begin(std::span<const TokenId> ids, std::span<const PassSegment> segments) = 0;
  /// residual = embeddings of the pass's ids.
  virtual void embed(const PassContext& pass) = 0;
  /// What a trunk layer does before its mixer.
  virtual void enter_layer(const PassContext& pass, const LayerWeights& layer,
                           std::span<const PassSegment> segments) = 0;
  /// normed = the input of a sublayer.
  virtual void read(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) = 0;
  /// The attention of a layer, normed to sublayer_out.
  virtual void attend(const PassContext& pass, const LayerWeights& layer, int index,
                      std::span<const AttentionSegment> segments) = 0;
  /// Of normed rows, only what later rows' attention reads: appended to the segment's cache.
  virtual void append_keys(const PassContext& pass, const LayerWeights& layer,
                           const AttentionSegment& segment) = 0;
  /// Joins a sublayer's output to the residual.
  virtual void write(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) = 0;
  /// After the last layer: the hidden rows [T, residual_dim or H], valid until the next pass.
  virtual TensorView finish(const PassContext& pass) = 0;
  /// What the output matrix multiplies, [rows, H], of hidden rows.
  virtual TensorView output_input(TensorView hidden) = 0;

  /// The draft head's residual from the trunk's hidden rows and the pass's ids.
  virtual void join_head(const PassContext& pass, TensorView hidden) = 0;
  /// After the head's layer: its output rows, the hidden input of the next chained step.
  virtual TensorView finish_head(const PassContext& pass) = 0;
  /// What the output matrix multiplies, of the head's output rows.
  virtual TensorView head_output_input(TensorView output) = 0;
};

/// The form of the config's family. All arguments must outlive it.
std::unique_ptr<ResidualForm> make_residual_form(Ops& ops, const ModelConfig& config,
                                                 const ModelWeights& weights, const Activations& activations);

}  // namespace mererun
