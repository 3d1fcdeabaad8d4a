#pragma once

#include "model/residual_form.h"

namespace mererun {

/// One stream: x + sublayer(norm(x)), a final norm. Dense and mixture-of-experts models.
class PlainForm final : public ResidualForm {
 public:
  PlainForm(Ops& ops, const ModelConfig& config, const ModelWeights& weights, const Activations& activations)
      : ops_(ops), config_(config), weights_(weights), activations_(activations) {}

  void begin(std::span<const TokenId>, std::span<const PassSegment>) override {}
  void embed(const PassContext& pass) override;
  void enter_layer(const PassContext&, const LayerWeights&, std::span<const PassSegment>) override {}
  void read(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) override;
  void attend(const PassContext& pass, const LayerWeights& layer, int index,
              std::span<const AttentionSegment> segments) override;
  void append_keys(const PassContext& pass, const LayerWeights& layer,
                   const AttentionSegment& segment) override;
  void write(const PassContext&, const LayerWeights&, Sublayer) override {}  // sublayers add to the residual
  TensorView finish(const PassContext& pass) override;
  TensorView output_input(TensorView hidden) override { return hidden; }
  void join_head(const PassContext& pass, TensorView hidden) override;
  TensorView finish_head(const PassContext& pass) override;
  TensorView head_output_input(TensorView output) override { return output; }

 private:
  TensorView norm_to_hidden(const PassContext& pass, const DeviceTensor& weight);

  Ops& ops_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Activations& activations_;
};

}  // namespace mererun
