#include <array>

#include "model/layer.h"

namespace mererun {

DeltaShape delta_shape(const ModelConfig& c) {
  return {c.linear_key_heads, c.linear_value_heads, c.linear_key_dim, c.linear_value_dim, c.conv_kernel};
}

StateGeometry state_geometry(const ModelConfig& c, bool draft_head) {
  const bool has_ngrams = c.flash && c.flash->has_ngrams();
  return {.attention_layers = c.count(LayerKind::kAttention),
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .delta_layers = c.count(LayerKind::kDeltaNet),
          .delta = delta_shape(c),
          .hidden = c.residual_dim(),
          .draft_head = draft_head,
          .index_dim = c.flash ? c.flash->indexer_head_dim : 0,
          .ngram_past = has_ngrams ? c.flash->ngram_past() : 0,
          .ngram_cols = has_ngrams ? c.residual_dim() : 0,
          .context_tokens = has_ngrams ? c.flash->ngram_size - 1 : 0,
          .context_fill = has_ngrams ? c.flash->ngram_cut : 0};
}

namespace {

/// The delta rule of one segment, whose rows of the convolution's inputs are given.
DeltaRuleParams rule_of(const PassContext& pass, const DeltaNetWeights& weights, const DeltaSegment& s,
                        const TensorView& inputs) {
  const ModelConfig& config = pass.config;
  const DeltaShape shape = delta_shape(config);
  const Activations::Delta d = pass.activations.delta(pass.rows);
  const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
  const TensorView k = s.log != nullptr ? s.log->k : rows(d.k);
  const TensorView alpha = s.log != nullptr ? s.log->alpha : rows(d.alpha);
  const TensorView out = rows(d.out);
  return {.prepare = {.shape = shape,
                      .inputs = inputs,
                      .window = s.window,
                      .conv_weight = weights.conv.view,
                      .a = rows(d.a),
                      .b = rows(d.b),
                      .a_log = weights.a_log.view,
                      .dt_bias = weights.dt_bias.view,
                      .q = rows(d.q),
                      .k = k,
                      .v = rows(d.v),
                      .alpha = alpha,
                      .beta = rows(d.beta)},
          .step = {.shape = shape,
                   .q = rows(d.q),
                   .k = k,
                   .v = rows(d.v),
                   .alpha = alpha,
                   .beta = rows(d.beta),
                   .state = s.state,
                   .write = s.log != nullptr ? StateWrite::kKeep : StateWrite::kStore,
                   .u = s.log != nullptr ? s.log->u : TensorView{},
                   .out = out},
          .norm = {.x = out,
                   .z = rows(d.z),
                   .weight = weights.norm.view,
                   .heads = config.linear_value_heads,
                   .eps = static_cast<float>(config.rms_eps),
                   .activation = config.output_gate == OutputGate::kSwish ? GateActivation::kSilu
                                                                          : GateActivation::kSigmoid,
                   .out = out}};
}

/// Keeps what later rows need of a segment's inputs: the conv window takes them, or the log of a
/// verification.
void keep_inputs(Ops& ops, const DeltaSegment& s, const TensorView& inputs) {
  if (s.log == nullptr) {
    ops.advance_window({.window = s.window, .inputs = inputs});
    return;
  }
  // The window stays; its next content depends on how many rows will be accepted.
  if (s.log->inputs.data != inputs.data)
    ops.copy(s.log->inputs.data, inputs.data,
             static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(inputs.cols) * sizeof(float));
}

}  // namespace

void run_delta_net(const PassContext& pass, const DeltaNetWeights& weights,
                   std::span<const DeltaSegment> segments) {
  const Activations::Delta d = pass.activations.delta(pass.rows);

  // A lone verification logs its inputs where they are computed; among other segments they are copied.
  const bool logs_in_place = segments.size() == 1 && segments[0].log != nullptr;
  const TensorView qkv = logs_in_place ? segments[0].log->inputs : d.qkv;
  const std::array<LinearParams::Target, 4> in{{{weights.in_proj_qkv.get(), qkv, {}},
                                                {weights.in_proj_z.get(), d.z, {}},
                                                {weights.in_proj_a.get(), d.a, {}},
                                                {weights.in_proj_b.get(), d.b, {}}}};
  pass.ops.linear({.x = pass.activations.normed(pass.rows), .targets = in});

  for (const DeltaSegment& s : segments) {
    const TensorView inputs = qkv.row_range(s.first_row, s.rows);
    pass.ops.delta_rule(rule_of(pass, weights, s, inputs));
    keep_inputs(pass.ops, s, inputs);
  }
  const std::array<LinearParams::Target, 1> out{
      {{weights.out_proj.get(), pass.activations.sublayer_out(pass.rows),
        pass.activations.sublayer_base(pass.rows)}}};
  pass.ops.linear({.x = d.out, .targets = out});
}

}  // namespace mererun
