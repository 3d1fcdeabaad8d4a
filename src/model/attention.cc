#include <array>
#include <cmath>

#include "model/layer.h"

namespace mererun {

void run_attention(const PassContext& pass, const AttentionWeights& weights,
                   std::span<const AttentionSegment> segments) {
  const ModelConfig& config = pass.config;
  const Activations::Attention a = pass.activations.attention(pass.rows);
  const TensorView normed = pass.activations.normed(pass.rows);
  const TensorView positions = pass.activations.positions(pass.rows);
  const TensorView residual = pass.activations.residual(pass.rows);

  const std::array<LinearParams::Target, 3> in{{{weights.q_proj.get(), a.q_gate, {}},
                                                {weights.k_proj.get(), a.k, {}},
                                                {weights.v_proj.get(), a.v, {}}}};
  pass.ops.linear({.x = normed, .targets = in});

  constexpr double kLog2E = 1.4426950408889634;
  const auto scale_log2e = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(config.head_dim)));
  for (const AttentionSegment& s : segments) {
    const TensorView rows_positions = positions.col_range(s.first_row, s.rows);
    const TensorView q_gate = a.q_gate.row_range(s.first_row, s.rows);
    const TensorView q = a.q.row_range(s.first_row, s.rows);
    pass.ops.attention_prepare({.q_gate = q_gate,
                                .k = a.k.row_range(s.first_row, s.rows),
                                .v = a.v.row_range(s.first_row, s.rows),
                                .q_norm = weights.q_norm.view,
                                .k_norm = weights.k_norm.view,
                                .positions = rows_positions,
                                .rope = pass.rope,
                                .eps = static_cast<float>(config.rms_eps),
                                .heads = config.heads,
                                .q = q,
                                .cache = s.cache});
    pass.ops.attend({.q = q,
                     .q_gate = q_gate,
                     .positions = rows_positions,
                     .cache = s.cache,
                     .heads = config.heads,
                     .scale_log2e = scale_log2e,
                     .out = a.out.row_range(s.first_row, s.rows)});
  }
  const std::array<LinearParams::Target, 1> out{{{weights.o_proj.get(), residual, residual}}};
  pass.ops.linear({.x = a.out, .targets = out});
}

}  // namespace mererun
