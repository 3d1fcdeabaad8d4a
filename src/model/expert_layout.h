#pragma once

#include <string>

#include "model/host_weights.h"
#include "model/tensor_binder.h"

namespace mererun {

/// Binds the three expert stacks of the MoE feed-forward at `layer` ("layers.3." or "mtp.layers.0."),
/// whichever way the file holds them:
///   stacked     mlp.switch_mlp.{gate,up,down}_proj.weight   [E, out, in]           borrowed
///   fused       mlp.experts.gate_up_proj                    [E, 2I, H]             borrowed, interleaved
///   transposed  mlp.experts.gate_up_proj, .down_proj        [E, H, 2I], [E, I, H]  rebuilt
///   per expert  mlp.experts.<e>.{gate,up,down}_proj.weight  [out, in]              rebuilt
/// Rebuilt stacks are owned by `layer_weights.owned`. Problems are listed by the binder. Internal to model/.
///
/// A shape that fits both the fused and the transposed reading is told apart by the down projection, whose
/// axes are then unlike; if both fit both, the fused order holds.
///
/// kDescribe rebuilds nothing: such a stack has the shape of the rebuilt one and points at stored data of
/// another order, which must not be read; `report.copied_bytes` is what rebuilding would take.
void bind_experts(TensorBinder& binder, const std::string& layer, const ModelConfig& config,
                  LoadOptions::Experts experts, HostLayer& layer_weights, LoadReport& report);

}  // namespace mererun
