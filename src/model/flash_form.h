#pragma once

#include <vector>

#include "model/flash_weights.h"
#include "model/residual_form.h"

namespace mererun {

/// Flash-Next: four streams with hyper-connections, sparse attention, the n-gram layer.
/// Source: model-math "Flash-Next".
class FlashForm final : public ResidualForm {
 public:
  FlashForm(Ops& ops, const ModelConfig& config, const ModelWeights& weights, const Activations& activations);

  void expect(const SequenceState& state, std::span<const TokenId> before,
              std::span<const TokenId> ids) override;
  void begin(std::span<const TokenId> ids, std::span<const PassSegment> segments) override;
  void embed(const PassContext& pass) override;
  void enter_layer(const PassContext& pass, const LayerWeights& layer,
                   std::span<const PassSegment> segments) override;
  void read(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) override;
  void attend(const PassContext& pass, const LayerWeights& layer, int index,
              std::span<const AttentionSegment> segments) override;
  void append_keys(const PassContext& pass, const LayerWeights& layer,
                   const AttentionSegment& segment) override;
  void write(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) override;
  TensorView finish(const PassContext& pass) override;
  TensorView output_input(TensorView hidden) override;
  void join_head(const PassContext& pass, TensorView hidden) override;
  TensorView finish_head(const PassContext& pass) override;
  TensorView head_output_input(TensorView output) override;

 private:
  /// out = the gated mixture of `streams`; the normed streams stay in the arena.
  void mix(const HyperConnectionWeights& weights, TensorView streams, TensorView out);
  void attend_segment(const PassContext& pass, const AttentionWeights& weights, const IndexerWeights& indexer,
                      int index, const AttentionSegment& segment);
  void prepare_index(const PassContext& pass, const IndexerWeights& indexer, const AttentionSegment& segment);
  void attend_sparse(const PassContext& pass, int index, const AttentionSegment& segment);
  void run_ngram(const PassContext& pass, const NgramWeights& weights, std::span<const PassSegment> segments);

  Ops& ops_;
  const ModelConfig& config_;
  const FlashConfig& flash_;
  const ModelWeights& weights_;
  const Activations& activations_;
  NgramTable* table_ = nullptr;  // null without an n-gram layer
  std::vector<std::int64_t> table_rows_;
  std::vector<TokenId> context_;
};

}  // namespace mererun
