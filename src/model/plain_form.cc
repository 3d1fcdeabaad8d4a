#include "model/plain_form.h"

namespace mererun {

void PlainForm::embed(const PassContext& pass) {
  ops_.embed_rows({.ids = activations_.ids(pass.rows),
                   .weight = weights_.embed.get(),
                   .out = activations_.residual(pass.rows)});
}

void PlainForm::read(const PassContext& pass, const LayerWeights& layer, Sublayer sublayer) {
  run_norm(pass, sublayer == Sublayer::kMixer ? layer.input_norm : layer.post_norm);
}

void PlainForm::attend(const PassContext& pass, const LayerWeights& layer, int,
                       std::span<const AttentionSegment> segments) {
  run_attention(pass, std::get<AttentionWeights>(layer.mixer), segments);
}

void PlainForm::append_keys(const PassContext& pass, const LayerWeights& layer,
                            const AttentionSegment& segment) {
  mererun::append_keys(pass, std::get<AttentionWeights>(layer.mixer), segment);
}

TensorView PlainForm::norm_to_hidden(const PassContext& pass, const DeviceTensor& weight) {
  const TensorView hidden = activations_.hidden(pass.rows);
  ops_.rms_norm({.x = activations_.residual(pass.rows),
                 .weight = weight.view,
                 .eps = static_cast<float>(config_.rms_eps),
                 .out = hidden});
  return hidden;
}

TensorView PlainForm::finish(const PassContext& pass) { return norm_to_hidden(pass, weights_.final_norm); }

void PlainForm::join_head(const PassContext& pass, TensorView hidden) {
  const DraftHeadWeights& w = *weights_.head;
  const auto eps = static_cast<float>(config_.rms_eps);
  const TensorView residual = activations_.residual(pass.rows);
  const TensorView input = activations_.fc_input(pass.rows);
  // The embedding half comes first: columns 0..H-1 of fc act on it.
  ops_.rms_norm({.x = hidden,
                 .weight = w.pre_fc_norm_hidden.view,
                 .eps = eps,
                 .out = input.col_range(config_.hidden, config_.hidden)});
  embed(pass);
  ops_.rms_norm({.x = residual,
                 .weight = w.pre_fc_norm_embedding.view,
                 .eps = eps,
                 .out = input.col_range(0, config_.hidden)});
  const LinearParams::Target fc{w.fc.get(), residual, {}};
  ops_.linear({.x = input, .targets = {&fc, 1}});
}

TensorView PlainForm::finish_head(const PassContext& pass) {
  return norm_to_hidden(pass, weights_.head->norm);
}

}  // namespace mererun
