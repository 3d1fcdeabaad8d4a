#include "kernels/validate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/validate_views.h"

namespace mererun {

namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kI32 = DType::kI32;

/// A weight of one expert with the given input width.
void check_weight(const ViewChecks& check, std::string_view field, const LinearWeight* weight, int in) {
  check.require(weight != nullptr, field, "a weight", "none");
  check.equal(field, weight->experts(), 1);
  check.equal(field, weight->in(), in);
}

void check_shape(const ViewChecks& check, const DeltaShape& s) {
  check.at_least("shape.key_heads", s.key_heads, 1);
  check.at_least("shape.value_heads", s.value_heads, 1);
  check.equal("shape.value_heads mod key_heads", s.value_heads % s.key_heads, 0);
  check.at_least("shape.key_dim", s.key_dim, 16);
  check.equal("shape.key_dim mod 16", s.key_dim % 16, 0);
  check.at_least("shape.value_dim", s.value_dim, 1);
  check.at_least("shape.conv_taps", s.conv_taps, 1);
}

void validate_shared(const ViewChecks& check, const ExpertMlpParams& p) {
  const SharedExpert& s = p.shared;
  check.require(s.up != nullptr && s.down != nullptr, "shared weights", "gate, up and down", "gate alone");
  const int rows = p.x.rows;
  const int inner = s.gate->out();
  check.equal("shared gate input", s.gate->in(), p.x.cols);
  check.equal("shared up input", s.up->in(), p.x.cols);
  check.equal("shared up rows", s.up->out(), inner);
  check.equal("shared down input", s.down->in(), inner);
  check.equal("shared down rows", s.down->out(), p.x.cols);
  check.equal("shared experts", s.gate->experts() * s.up->experts() * s.down->experts(), 1);
  check.shape("shared logits", s.logits, kF32, rows, 1);
  check.shape("shared gate_scratch", s.gate_scratch, kF32, rows, inner);
  check.shape("shared up_scratch", s.up_scratch, kF32, rows, inner);
  check.shape("shared out_scratch", s.out_scratch, kF32, rows, p.x.cols);
  check.apart("shared out_scratch and x", s.out_scratch, p.x);
  check.apart("shared out_scratch and gate_scratch", s.out_scratch, s.gate_scratch);
  check.apart("shared out_scratch and residual", s.out_scratch, p.residual);
  check.apart("shared out_scratch and out", s.out_scratch, p.out);
}

}  // namespace

void validate(const EmbedRowsParams& p) {
  const ViewChecks check("embed_rows");
  check_weight(check, "weight", p.weight, p.out.cols);
  check.shape("ids", p.ids, kI32, 1, p.out.rows);
  check.shape("out", p.out, kF32, p.out.rows, p.weight->in());
}

void validate(const LinearParams& p) {
  const ViewChecks check("linear");
  check.shape("x", p.x, kF32, p.x.rows, p.x.cols);
  for (std::size_t j = 0; j < p.targets.size(); ++j) {
    const LinearParams::Target& target = p.targets[j];
    check_weight(check, "weight", target.weight, p.x.cols);
    check.shape("out", target.out, kF32, p.x.rows, target.weight->out());
    check.apart("out and x", target.out, p.x);
    for (std::size_t i = 0; i < j; ++i) check.apart("two outs", target.out, p.targets[i].out);
    if (target.residual.empty()) continue;
    check.shape("residual", target.residual, kF32, p.x.rows, target.weight->out());
    check.apart_or_same("out and residual", target.out, target.residual);
  }
}

void validate(const SelectedRowsParams& p) {
  const ViewChecks check("selected_rows");
  check_weight(check, "weight", p.weight, p.x.cols);
  check.at_least("rows columns", p.rows.cols, 1);
  check.shape("x", p.x, kF32, 1, p.x.cols);
  check.shape("rows", p.rows, kI32, 1, p.rows.cols);
  check.shape("scratch", p.scratch, kF32, 1, p.weight->out());
  check.shape("out", p.out, kF32, 1, p.rows.cols);
  check.apart("scratch and x", p.scratch, p.x);
  check.apart("scratch and out", p.scratch, p.out);
}

void validate(const GatedLinearParams& p) {
  const ViewChecks check("gated_linear");
  check_weight(check, "gate", p.gate, p.x.cols);
  check_weight(check, "up", p.up, p.x.cols);
  const int width = p.gate->out();
  check.equal("up rows", p.up->out(), width);
  check.shape("x", p.x, kF32, p.x.rows, p.x.cols);
  check.shape("gate_scratch", p.gate_scratch, kF32, p.x.rows, width);
  check.shape("up_scratch", p.up_scratch, kF32, p.x.rows, width);
  check.shape("out", p.out, kF32, p.x.rows, width);
  check.apart("gate_scratch and x", p.gate_scratch, p.x);
  check.apart("up_scratch and x", p.up_scratch, p.x);
  check.apart("gate_scratch and up_scratch", p.gate_scratch, p.up_scratch);
  check.apart("out and x", p.out, p.x);
  check.apart_or_same("out and gate_scratch", p.out, p.gate_scratch);
  check.apart_or_same("out and up_scratch", p.out, p.up_scratch);
}

void validate(const SwigluParams& p) {
  const ViewChecks check("swiglu");
  check.shape("gate", p.gate, kF32, p.out.rows, p.out.cols);
  check.shape("up", p.up, kF32, p.out.rows, p.out.cols);
  check.shape("out", p.out, kF32, p.out.rows, p.out.cols);
  check.apart_or_same("out and gate", p.out, p.gate);
  check.apart_or_same("out and up", p.out, p.up);
}

void validate(const RmsNormParams& p) {
  const ViewChecks check("rms_norm");
  check.at_least("x columns", p.x.cols, 1);
  check.shape("x", p.x, kF32, p.x.rows, p.x.cols);
  check.shape("weight", p.weight, kF32, 1, p.x.cols);
  check.shape("out", p.out, kF32, p.x.rows, p.x.cols);
  check.apart_or_same("out and x", p.out, p.x);
  check.apart("out and weight", p.out, p.weight);
}

void validate(const GatedRmsNormParams& p) {
  const ViewChecks check("gated_rms_norm");
  check.at_least("heads", p.heads, 1);
  check.at_least("weight columns", p.weight.cols, 1);
  const int width = p.heads * p.weight.cols;
  check.shape("weight", p.weight, kF32, 1, p.weight.cols);
  check.shape("x", p.x, kF32, p.x.rows, width);
  check.shape("z", p.z, kF32, p.x.rows, width);
  check.shape("out", p.out, kF32, p.x.rows, width);
  check.apart_or_same("out and x", p.out, p.x);
  check.apart("out and z", p.out, p.z);
  check.apart("out and weight", p.out, p.weight);
}

void validate(const AddRowsParams& p) {
  const ViewChecks check("add_rows");
  check.shape("a", p.a, kF32, p.out.rows, p.out.cols);
  check.shape("b", p.b, kF32, p.out.rows, p.out.cols);
  check.shape("out", p.out, kF32, p.out.rows, p.out.cols);
  check.apart_or_same("out and a", p.out, p.a);
  check.apart_or_same("out and b", p.out, p.b);
}

void validate(const ArgmaxRowsParams& p) {
  const ViewChecks check("argmax_rows");
  check.at_least("logits columns", p.logits.cols, 1);
  check.shape("logits", p.logits, kF32, p.logits.rows, p.logits.cols);
  check.shape("ids", p.ids, kI32, 1, p.logits.rows);
}

void validate(const AttentionPrepareParams& p) {
  const ViewChecks check("attention_prepare");
  check_cache(check, p.cache, p.heads);
  const int rows = p.k.rows;
  const int dim = p.cache.head_dim;
  check.require(p.q_gate.empty() == p.q.empty(), "q and q_gate", "both or neither", "one of them");
  if (!p.q.empty()) {
    check.shape("q_gate", p.q_gate, kF32, rows, 2 * p.heads * dim);
    check.shape("q", p.q, kF32, rows, p.heads * dim);
  }
  check.shape("k", p.k, kF32, rows, p.cache.kv_heads * dim);
  check.shape("v", p.v, kF32, rows, p.cache.kv_heads * dim);
  check.shape("q_norm", p.q_norm, kF32, 1, dim);
  check.shape("k_norm", p.k_norm, kF32, 1, dim);
  check.shape("positions", p.positions, kI32, 1, rows);
  check_rope(check, p.rope, "head_dim", dim);
  check.apart("q and q_gate", p.q, p.q_gate);
  check.apart("q and k", p.q, p.k);
  check.apart("q and v", p.q, p.v);
}

void validate(const AttendParams& p) {
  const ViewChecks check("attend");
  check_cache(check, p.cache, p.heads);
  const int rows = p.q.rows;
  const int dim = p.cache.head_dim;
  check.shape("q", p.q, kF32, rows, p.heads * dim);
  check.shape("q_gate", p.q_gate, kF32, rows, 2 * p.heads * dim);
  check.shape("positions", p.positions, kI32, 1, rows);
  check.shape("out", p.out, kF32, rows, p.heads * dim);
  check.apart("out and q", p.out, p.q);
  check.apart("out and q_gate", p.out, p.q_gate);
}

void validate(const DeltaPrepareParams& p) {
  const ViewChecks check("delta_prepare");
  check_shape(check, p.shape);
  const int rows = p.inputs.rows;
  const int channels = p.shape.conv_channels();
  check.shape("inputs", p.inputs, kF32, rows, channels);
  check.shape("window", p.window, kF32, p.shape.conv_taps - 1, channels);
  check.shape("conv_weight", p.conv_weight, kF32, p.shape.conv_taps, channels);
  check.shape("a", p.a, kF32, rows, p.shape.value_heads);
  check.shape("b", p.b, kF32, rows, p.shape.value_heads);
  check.shape("a_log", p.a_log, kF32, 1, p.shape.value_heads);
  check.shape("dt_bias", p.dt_bias, kF32, 1, p.shape.value_heads);
  check.shape("q", p.q, kF32, rows, p.shape.key_width());
  check.shape("k", p.k, kF32, rows, p.shape.key_width());
  check.shape("v", p.v, kF32, rows, p.shape.value_width());
  check.shape("alpha", p.alpha, kF32, rows, p.shape.value_heads);
  check.shape("beta", p.beta, kF32, rows, p.shape.value_heads);
  for (const TensorView& out : {p.q, p.k, p.v}) {
    check.apart("outputs and inputs", out, p.inputs);
    check.apart("outputs and window", out, p.window);
  }
}

void validate(const DeltaStepParams& p) {
  const ViewChecks check("delta_step");
  check_shape(check, p.shape);
  const int rows = p.q.rows;
  check.shape("q", p.q, kF32, rows, p.shape.key_width());
  check.shape("k", p.k, kF32, rows, p.shape.key_width());
  check.shape("v", p.v, kF32, rows, p.shape.value_width());
  check.shape("alpha", p.alpha, kF32, rows, p.shape.value_heads);
  check.shape("beta", p.beta, kF32, rows, p.shape.value_heads);
  check.shape("state", p.state, kF32, p.shape.value_heads * p.shape.key_dim, p.shape.value_dim);
  check.shape("out", p.out, kF32, rows, p.shape.value_width());
  if (!p.u.empty()) check.shape("u", p.u, kF32, rows, p.shape.value_width());
  for (const TensorView& out : {p.out, p.u}) {
    check.apart("outputs and q", out, p.q);
    check.apart("outputs and k", out, p.k);
    check.apart("outputs and v", out, p.v);
    check.apart("outputs and state", out, p.state);
  }
  check.apart("out and u", p.out, p.u);
}

void validate(const DeltaReplayParams& p) {
  const ViewChecks check("delta_replay");
  check_shape(check, p.shape);
  check.shape("k", p.k, kF32, p.k.rows, p.shape.key_width());
  check.shape("u", p.u, kF32, p.k.rows, p.shape.value_width());
  check.shape("alpha", p.alpha, kF32, p.k.rows, p.shape.value_heads);
  check.shape("state", p.state, kF32, p.shape.value_heads * p.shape.key_dim, p.shape.value_dim);
  check.apart("state and k", p.state, p.k);
  check.apart("state and u", p.state, p.u);
}

void validate(const AdvanceWindowParams& p) {
  const ViewChecks check("advance_window");
  check.shape("window", p.window, kF32, p.window.rows, p.window.cols);
  check.shape("inputs", p.inputs, kF32, p.inputs.rows, p.window.cols);
  check.apart("window and inputs", p.window, p.inputs);
}

void validate(const RouteExpertsParams& p) {
  const ViewChecks check("route_experts");
  const int rows = p.logits.rows;
  const int chosen = p.ids.cols;
  check.shape("logits", p.logits, kF32, rows, p.logits.cols);
  check.at_least("ids columns", chosen, 1);
  check.at_least("logits columns", p.logits.cols, chosen);
  check.shape("ids", p.ids, kI32, rows, chosen);
  check.shape("weights", p.weights, kF32, rows, chosen);
  if (!p.forced_ids.empty()) check.shape("forced_ids", p.forced_ids, kI32, rows, chosen);
  check.apart("weights and logits", p.weights, p.logits);
}

void validate(const ExpertMlpParams& p) {
  const ViewChecks check("expert_mlp");
  check.require(p.gate != nullptr && p.up != nullptr && p.down != nullptr, "weights", "gate, up and down",
                "none");
  const int rows = p.x.rows;
  const int hidden = p.x.cols;
  check.equal("up experts", p.up->experts(), p.gate->experts());
  check.equal("down experts", p.down->experts(), p.gate->experts());
  check.equal("gate input", p.gate->in(), hidden);
  check.equal("up input", p.up->in(), hidden);
  check.equal("up rows", p.up->out(), p.gate->out());
  check.equal("down input", p.down->in(), p.gate->out());
  check.equal("down rows", p.down->out(), hidden);
  check.shape("x", p.x, kF32, rows, hidden);
  check.shape("ids", p.ids, kI32, rows, p.ids.cols);
  check.at_least("ids columns", p.ids.cols, 1);
  check.shape("weights", p.weights, kF32, rows, p.ids.cols);
  if (!p.shared.empty()) validate_shared(check, p);
  check.shape("residual", p.residual, kF32, rows, hidden);
  check.shape("out", p.out, kF32, rows, hidden);
  check.apart_or_same("out and residual", p.out, p.residual);
  check.apart("out and x", p.out, p.x);
}

void validate(const LinearSource& s) {
  const auto require = [&](bool holds, ErrorCode code, std::string_view expected, std::string_view got) {
    if (!holds) fail_expected(code, s.name, expected, got);
  };
  require(s.experts >= 1 && s.out >= 1 && s.in >= 1, ErrorCode::kInvalidArgument, "sizes of at least 1",
          fmt::format("{} x [{}, {}]", s.experts, s.out, s.in));
  require(s.weight != nullptr, ErrorCode::kInvalidArgument, "a weight", "none");
  require(s.dtype == DType::kF32 || s.dtype == DType::kBF16 || s.dtype == DType::kF16,
          ErrorCode::kUnsupported, "BF16, F16 or F32", name_of(s.dtype));
  require(s.rows_between_experts() >= s.out, ErrorCode::kInvalidArgument,
          fmt::format("experts at least {} rows apart", s.out), fmt::format("{}", s.expert_stride));
  if (s.format == WeightFormat::kDense) return;
  require(s.scales != nullptr && s.biases != nullptr, ErrorCode::kInvalidArgument, "scales and biases",
          "none");
  require((s.bits >= 2 && s.bits <= 6) || s.bits == 8, ErrorCode::kUnsupported, "2, 3, 4, 5, 6 or 8 bits",
          fmt::format("{}", s.bits));
  require(s.group == 32 || s.group == 64 || s.group == 128, ErrorCode::kUnsupported,
          "groups of 32, 64 or 128", fmt::format("{}", s.group));
  require(s.in % s.group == 0, ErrorCode::kUnsupported, fmt::format("a width divisible by {}", s.group),
          fmt::format("{}", s.in));
}

}  // namespace mererun
