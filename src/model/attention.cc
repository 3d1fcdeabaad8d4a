#include <array>

#include "kernels/numerics.h"
#include "model/layer.h"

namespace mererun {

void prepare_attention(const PassContext& pass, const AttentionWeights& weights, const AttentionSegment& s,
                       Queries queries) {
  const Activations::Attention a = pass.activations.attention(pass.rows);
  const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
  const bool with_queries = queries == Queries::kPrepare;
  pass.ops.attention_prepare(
      {.q_gate = with_queries ? rows(a.q_gate) : TensorView{},
       .k = rows(a.k),
       .v = rows(a.v),
       .q_norm = weights.q_norm.view,
       .k_norm = weights.k_norm.view,
       .positions = pass.activations.positions(pass.rows).col_range(s.first_row, s.rows),
       .rope = pass.rope,
       .eps = static_cast<float>(pass.config.rms_eps),
       .heads = pass.config.heads,
       .q = with_queries ? rows(a.q) : TensorView{},
       .cache = s.cache});
}

void append_keys(const PassContext& pass, const AttentionWeights& weights, const AttentionSegment& s) {
  const Activations::Attention a = pass.activations.attention(pass.rows);
  const std::array<LinearParams::Target, 2> in{
      {{weights.k_proj.get(), a.k, {}}, {weights.v_proj.get(), a.v, {}}}};
  pass.ops.linear({.x = pass.activations.normed(pass.rows), .targets = in});
  prepare_attention(pass, weights, s, Queries::kLeaveOut);
}

void attend_dense(const PassContext& pass, const AttentionSegment& s) {
  const Activations::Attention a = pass.activations.attention(pass.rows);
  const auto rows = [&](const TensorView& view) { return view.row_range(s.first_row, s.rows); };
  pass.ops.attend({.q = rows(a.q),
                   .q_gate = rows(a.q_gate),
                   .positions = pass.activations.positions(pass.rows).col_range(s.first_row, s.rows),
                   .cache = s.cache,
                   .heads = pass.config.heads,
                   .scale_log2e = numerics::attention_scale_log2e(pass.config.head_dim),
                   .out = rows(a.out)});
}

void run_attention(const PassContext& pass, const AttentionWeights& weights,
                   std::span<const AttentionSegment> segments) {
  const Activations::Attention a = pass.activations.attention(pass.rows);
  const std::array<LinearParams::Target, 3> in{{{weights.q_proj.get(), a.q_gate, {}},
                                                {weights.k_proj.get(), a.k, {}},
                                                {weights.v_proj.get(), a.v, {}}}};
  pass.ops.linear({.x = pass.activations.normed(pass.rows), .targets = in});
  for (const AttentionSegment& s : segments) {
    prepare_attention(pass, weights, s);
    attend_dense(pass, s);
  }
  const std::array<LinearParams::Target, 1> out{
      {{weights.o_proj.get(), pass.activations.sublayer_out(pass.rows),
        pass.activations.sublayer_base(pass.rows)}}};
  pass.ops.linear({.x = a.out, .targets = out});
}

}  // namespace mererun
