#include "kernels/ops.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "kernels/validate.h"

namespace mererun {

namespace {

[[noreturn]] void refuse(const Ops& ops, std::string_view op) {
  fail_expected(ErrorCode::kUnsupported, op, "a backend that serves Flash-Next",
                fmt::format("{}, on which it is not available", ops.name()));
}

}  // namespace

void Ops::selected_rows(const SelectedRowsParams& p) {
  validate(p);
  const LinearParams::Target all{p.weight, p.scratch, {}};
  linear({.x = p.x, .targets = {&all, 1}});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(p.rows.cols));
  download(rows.data(), p.rows.data, rows.size() * sizeof(std::int32_t));
  for (std::size_t j = 0; j < rows.size(); ++j)
    copy(p.out.row<float>(0) + j, p.scratch.row<float>(0) + rows[j], sizeof(float));
}

void Ops::delta_rule(const DeltaRuleParams& p) {
  delta_prepare(p.prepare);
  delta_step(p.step);
  gated_rms_norm(p.norm);
}

void Ops::run_shared_expert(const ExpertMlpParams& p) {
  const SharedExpert& s = p.shared;
  if (s.empty()) return;
  gated_linear({.x = p.x,
                .gate = s.gate,
                .up = s.up,
                .gate_scratch = s.gate_scratch,
                .up_scratch = s.up_scratch,
                .out = s.gate_scratch});
  const LinearParams::Target out{s.down, s.out_scratch, {}};
  linear({.x = s.gate_scratch, .targets = {&out, 1}});
}

void Ops::grouped_rms_norm(const GroupedRmsNormParams&) { refuse(*this, "grouped_rms_norm"); }
void Ops::stream_silu(const StreamSiluParams&) { refuse(*this, "stream_silu"); }
void Ops::mix_streams(const MixStreamsParams&) { refuse(*this, "mix_streams"); }
void Ops::add_to_streams(const AddToStreamsParams&) { refuse(*this, "add_to_streams"); }
void Ops::ngram_gate(const NgramGateParams&) { refuse(*this, "ngram_gate"); }
void Ops::ngram_conv(const NgramConvParams&) { refuse(*this, "ngram_conv"); }
void Ops::index_prepare(const IndexPrepareParams&) { refuse(*this, "index_prepare"); }
void Ops::select_blocks(const SelectBlocksParams&) { refuse(*this, "select_blocks"); }
void Ops::attend_blocks(const AttendBlocksParams&) { refuse(*this, "attend_blocks"); }

}  // namespace mererun
