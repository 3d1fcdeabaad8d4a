#include <array>

#include "model/layer.h"

namespace mererun {

void run_norm(const PassContext& pass, const DeviceTensor& weight) {
  pass.ops.rms_norm({.x = pass.activations.residual(pass.rows),
                     .weight = weight.view,
                     .eps = static_cast<float>(pass.config.rms_eps),
                     .out = pass.activations.normed(pass.rows)});
}

void run_mlp(const PassContext& pass, const MlpWeights& weights) {
  const Activations::FeedForward f = pass.activations.feed_forward(pass.rows);
  pass.ops.gated_linear({.x = pass.activations.normed(pass.rows),
                         .gate = weights.gate.get(),
                         .up = weights.up.get(),
                         .gate_scratch = f.gate,
                         .up_scratch = f.up,
                         .out = f.gate});
  const std::array<LinearParams::Target, 1> out{
      {{weights.down.get(), pass.activations.sublayer_out(pass.rows),
        pass.activations.sublayer_base(pass.rows)}}};
  pass.ops.linear({.x = f.gate, .targets = out});
}

void run_moe(const PassContext& pass, const MoeWeights& weights, int layer, bool normalise) {
  const Activations::FeedForward f = pass.activations.feed_forward(pass.rows);
  const TensorView normed = pass.activations.normed(pass.rows);
  const TensorView out = pass.activations.sublayer_out(pass.rows);
  if (pass.activations.sublayer_base(pass.rows).empty()) {
    // The op adds to what is there.
    pass.ops.zero(out.data,
                  static_cast<std::size_t>(out.rows) * static_cast<std::size_t>(out.cols) * sizeof(float));
  }

  const std::array<LinearParams::Target, 2> controls{
      {{weights.router.get(), f.router, {}}, {weights.shared_gate.get(), f.shared_gate, {}}}};
  pass.ops.linear({.x = normed, .targets = controls});
  TensorView forced;
  if (pass.hooks != nullptr && pass.hooks->forced_experts)
    forced = pass.hooks->forced_experts(layer, pass.rows);
  pass.ops.route_experts(
      {.logits = f.router, .forced_ids = forced, .normalise = normalise, .ids = f.ids, .weights = f.weights});
  if (pass.hooks != nullptr && pass.hooks->routed) pass.hooks->routed(layer, f.ids, f.weights);

  pass.ops.expert_mlp({.x = normed,
                       .ids = f.ids,
                       .weights = f.weights,
                       .gate = weights.expert_gate.get(),
                       .up = weights.expert_up.get(),
                       .down = weights.expert_down.get(),
                       .shared = {.gate = weights.shared.gate.get(),
                                  .up = weights.shared.up.get(),
                                  .down = weights.shared.down.get(),
                                  .logits = f.shared_gate,
                                  .gate_scratch = f.gate,
                                  .up_scratch = f.up,
                                  .out_scratch = f.shared},
                       .residual = out,
                       .out = out});
}

void run_feed_forward(const PassContext& pass, const LayerWeights& layer, int index, bool normalise) {
  if (const auto* mlp = std::get_if<MlpWeights>(&layer.feed_forward)) {
    run_mlp(pass, *mlp);
  } else {
    run_moe(pass, std::get<MoeWeights>(layer.feed_forward), index, normalise);
  }
}

}  // namespace mererun
