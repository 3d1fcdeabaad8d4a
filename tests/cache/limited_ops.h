#pragma once

#include <memory>
#include <utility>

#include "base/error.h"
#include "kernels/ops.h"

namespace mererun::testing {

/// Another backend whose allocations are counted and can be made to fail.
class LimitedOps final : public Ops {
 public:
  explicit LimitedOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  int allocations = 0;
  int allowed = -1;            // allocations until one fails; negative: no limit
  std::size_t live_bytes = 0;  // as asked for
  bool refuses_downloads = false;

  std::string_view name() const override { return inner_->name(); }
  Buffer allocate(std::size_t bytes) override {
    if (allowed == 0) throw Error(ErrorCode::kOutOfMemory, "limited ops: expected memory, got none");
    if (allowed > 0) --allowed;
    ++allocations;
    live_bytes += bytes;
    auto memory = std::make_shared<Buffer>(inner_->allocate(bytes));
    return Buffer(memory->data(), bytes, [this, memory, bytes](void*) { live_bytes -= bytes; });
  }
  void upload(void* d, const void* h, std::size_t n) override { inner_->upload(d, h, n); }
  void download(void* h, const void* d, std::size_t n) override {
    if (refuses_downloads) throw Error(ErrorCode::kIo, "limited ops: expected a download, got none");
    inner_->download(h, d, n);
  }
  void copy(void* to, const void* from, std::size_t n) override { inner_->copy(to, from, n); }
  void zero(void* d, std::size_t n) override { inner_->zero(d, n); }
  void synchronize() override { inner_->synchronize(); }
  LinearHandle prepare_linear(const LinearSource& s) override { return inner_->prepare_linear(s); }
  LinearHandle prepare_embedding(const LinearSource& s) override { return inner_->prepare_embedding(s); }
  void embed_rows(const EmbedRowsParams& p) override { inner_->embed_rows(p); }
  void rms_norm(const RmsNormParams& p) override { inner_->rms_norm(p); }
  void gated_rms_norm(const GatedRmsNormParams& p) override { inner_->gated_rms_norm(p); }
  void linear(const LinearParams& p) override { inner_->linear(p); }
  void gated_linear(const GatedLinearParams& p) override { inner_->gated_linear(p); }
  void swiglu(const SwigluParams& p) override { inner_->swiglu(p); }
  void add_rows(const AddRowsParams& p) override { inner_->add_rows(p); }
  void attention_prepare(const AttentionPrepareParams& p) override { inner_->attention_prepare(p); }
  void attend(const AttendParams& p) override { inner_->attend(p); }
  void delta_prepare(const DeltaPrepareParams& p) override { inner_->delta_prepare(p); }
  void delta_step(const DeltaStepParams& p) override { inner_->delta_step(p); }
  void delta_replay(const DeltaReplayParams& p) override { inner_->delta_replay(p); }
  void advance_window(const AdvanceWindowParams& p) override { inner_->advance_window(p); }
  void route_experts(const RouteExpertsParams& p) override { inner_->route_experts(p); }
  void expert_mlp(const ExpertMlpParams& p) override { inner_->expert_mlp(p); }
  void argmax_rows(const ArgmaxRowsParams& p) override { inner_->argmax_rows(p); }
  void grouped_rms_norm(const GroupedRmsNormParams& p) override { inner_->grouped_rms_norm(p); }
  void stream_silu(const StreamSiluParams& p) override { inner_->stream_silu(p); }
  void mix_streams(const MixStreamsParams& p) override { inner_->mix_streams(p); }
  void add_to_streams(const AddToStreamsParams& p) override { inner_->add_to_streams(p); }
  void ngram_gate(const NgramGateParams& p) override { inner_->ngram_gate(p); }
  void ngram_conv(const NgramConvParams& p) override { inner_->ngram_conv(p); }
  void index_prepare(const IndexPrepareParams& p) override { inner_->index_prepare(p); }
  void select_blocks(const SelectBlocksParams& p) override { inner_->select_blocks(p); }
  void attend_blocks(const AttendBlocksParams& p) override { inner_->attend_blocks(p); }

 private:
  std::unique_ptr<Ops> inner_;
};

}  // namespace mererun::testing
