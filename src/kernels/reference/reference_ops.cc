#include "kernels/reference/reference_ops.h"

#include <cstring>

#include "base/error.h"
#include "kernels/reference/unpack.h"
#include "kernels/validate.h"

namespace mererun {

namespace reference {

namespace baseline {
Loops loops();
}
#if defined(MERERUN_REFERENCE_FUSED)
namespace fused {
Loops loops();
}
#endif

ReferenceWeight::ReferenceWeight(const LinearSource& source, Codes codes)
    : LinearWeight(source.experts, source.out, source.in), source_(source) {
  if (codes == Codes::kUnpacked && source.format == WeightFormat::kAffine) codes_ = unpack_codes(source);
}

namespace {

const ReferenceWeight& own(const LinearWeight* weight) {
  const auto* mine = dynamic_cast<const ReferenceWeight*>(weight);
  if (mine == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, "linear weight", "one prepared by the reference backend",
                  "another");
  }
  return *mine;
}

TensorView row_view(float* data, int cols) { return make_view(data, DType::kF32, 1, cols); }

}  // namespace

Buffer ReferenceOps::allocate(std::size_t bytes) { return allocate_host(bytes); }
void ReferenceOps::upload(void* device, const void* host, std::size_t bytes) { copy(device, host, bytes); }
void ReferenceOps::download(void* host, const void* device, std::size_t bytes) { copy(host, device, bytes); }
void ReferenceOps::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}
void ReferenceOps::zero(void* device, std::size_t bytes) {
  if (bytes != 0) std::memset(device, 0, bytes);
}

LinearHandle ReferenceOps::prepare_linear(const LinearSource& source) {
  validate(source);
  return std::make_shared<ReferenceWeight>(source, ReferenceWeight::Codes::kUnpacked);
}

LinearHandle ReferenceOps::prepare_embedding(const LinearSource& source) {
  validate(source);
  return std::make_shared<ReferenceWeight>(source, ReferenceWeight::Codes::kInPlace);
}

Scratch ReferenceOps::scratch(std::size_t values) {
  if (values_.size() < values) values_.resize(values);
  return {values_.data(), codes_.data(), group_d_.data(), group_sum_.data()};
}

Scratch ReferenceOps::linear_scratch(const LinearSource& source, int rows) {
  if (source.format == WeightFormat::kAffine) {
    const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(source.in);
    const std::size_t groups = count / static_cast<std::size_t>(source.group);
    if (codes_.size() < count) codes_.resize(count);
    if (group_d_.size() < groups) group_d_.resize(groups);
    if (group_sum_.size() < groups) group_sum_.resize(groups);
  }
  return scratch(linear_values(source.in));
}

void ReferenceOps::multiply(const LinearWeight& weight, int expert, TensorView x, TensorView out,
                            TensorView residual) {
  const WeightData data = own(&weight).data();
  if (data.source->format == WeightFormat::kAffine && data.codes == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, data.source->name, "a weight of prepare_linear",
                  "one of prepare_embedding");
  }
  loops_.linear(data, expert, x, out, residual, linear_scratch(*data.source, x.rows));
}

void ReferenceOps::embed_rows(const EmbedRowsParams& p) {
  validate(p);
  validate_contents(p);
  loops_.embed_rows(p, own(p.weight).data());
}

void ReferenceOps::rms_norm(const RmsNormParams& p) {
  validate(p);
  loops_.rms_norm(p);
}

void ReferenceOps::gated_rms_norm(const GatedRmsNormParams& p) {
  validate(p);
  loops_.gated_rms_norm(p);
}

void ReferenceOps::linear(const LinearParams& p) {
  validate(p);
  for (const LinearParams::Target& target : p.targets) {
    multiply(*target.weight, 0, p.x, target.out, target.residual);
  }
}

void ReferenceOps::gated_linear(const GatedLinearParams& p) {
  validate(p);
  multiply(*p.gate, 0, p.x, p.gate_scratch, {});
  multiply(*p.up, 0, p.x, p.up_scratch, {});
  loops_.swiglu({p.gate_scratch, p.up_scratch, p.out});
}

void ReferenceOps::swiglu(const SwigluParams& p) {
  validate(p);
  loops_.swiglu(p);
}

void ReferenceOps::add_rows(const AddRowsParams& p) {
  validate(p);
  loops_.add_rows(p);
}

void ReferenceOps::attention_prepare(const AttentionPrepareParams& p) {
  validate(p);
  validate_contents(p);
  loops_.attention_prepare(p, scratch(static_cast<std::size_t>(p.cache.head_dim)));
}

void ReferenceOps::attend(const AttendParams& p) {
  validate(p);
  validate_contents(p);
  loops_.attend(p, scratch(attend_values(p.cache.head_dim)));
}

void ReferenceOps::delta_prepare(const DeltaPrepareParams& p) {
  validate(p);
  loops_.delta_prepare(p, scratch(delta_prepare_values(p.shape)));
}

void ReferenceOps::delta_step(const DeltaStepParams& p) {
  validate(p);
  loops_.delta_step(p, scratch(delta_step_values(p.shape)));
}

void ReferenceOps::delta_replay(const DeltaReplayParams& p) {
  validate(p);
  loops_.delta_replay(p);
}

void ReferenceOps::advance_window(const AdvanceWindowParams& p) {
  validate(p);
  loops_.advance_window(p);
}

void ReferenceOps::route_experts(const RouteExpertsParams& p) {
  validate(p);
  validate_contents(p);
  loops_.route_experts(p, scratch(static_cast<std::size_t>(p.logits.cols)));
}

void ReferenceOps::expert_mlp(const ExpertMlpParams& p) {
  validate(p);
  validate_contents(p);
  run_shared_expert(p);
  const int hidden = p.x.cols;
  const int inner = p.gate->out();
  std::vector<float> gate(static_cast<std::size_t>(inner)), up(gate.size());
  std::vector<float> y(static_cast<std::size_t>(hidden)), acc(y.size());
  for (int t = 0; t < p.x.rows; ++t) {
    acc.assign(acc.size(), 0.0f);
    for (int i = 0; i < p.ids.cols; ++i) {
      const int expert = p.ids.row<std::int32_t>(t)[i];
      const TensorView gate_row = row_view(gate.data(), inner);
      const TensorView up_row = row_view(up.data(), inner);
      multiply(*p.gate, expert, p.x.row_range(t, 1), gate_row, {});
      multiply(*p.up, expert, p.x.row_range(t, 1), up_row, {});
      loops_.swiglu({gate_row, up_row, gate_row});
      multiply(*p.down, expert, gate_row, row_view(y.data(), hidden), {});
      loops_.accumulate_expert(p.weights.row<float>(t)[i], y.data(), acc.data(), hidden);
    }
    const bool has_shared = !p.shared.empty();
    loops_.finish_experts(acc.data(), has_shared ? p.shared.out_scratch.row<float>(t) : nullptr,
                          has_shared ? p.shared.logits.row<float>(t) : nullptr, p.residual.row<float>(t),
                          p.out.row<float>(t), hidden);
  }
}

void ReferenceOps::argmax_rows(const ArgmaxRowsParams& p) {
  validate(p);
  loops_.argmax_rows(p);
}

std::unique_ptr<Ops> make_baseline_reference_ops() {
  return std::make_unique<ReferenceOps>(baseline::loops());
}

std::unique_ptr<Ops> make_fused_reference_ops() {
#if defined(MERERUN_REFERENCE_FUSED)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return std::make_unique<ReferenceOps>(fused::loops());
  }
#endif
  return nullptr;
}

}  // namespace reference

std::unique_ptr<Ops> make_reference_ops() {
  std::unique_ptr<Ops> fused = reference::make_fused_reference_ops();
  return fused != nullptr ? std::move(fused) : reference::make_baseline_reference_ops();
}

}  // namespace mererun
