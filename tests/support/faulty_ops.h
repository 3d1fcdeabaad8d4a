#pragma once

#include <memory>

#include "base/error.h"
#include "kernels/ops.h"

namespace mererun::testing {

/// Forwards to another backend and fails on the n-th computing call after arming.
class FaultyOps final : public Ops {
 public:
  explicit FaultyOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  /// The n-th call from now throws kDevice, once; n = 0 disarms.
  void arm(int n) { countdown_ = n; }
  bool fired() const { return fired_; }

  std::string_view name() const override { return inner_->name(); }
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void upload(void* d, const void* h, std::size_t n) override { inner_->upload(d, h, n); }
  void download(void* h, const void* d, std::size_t n) override { inner_->download(h, d, n); }
  void copy(void* to, const void* from, std::size_t n) override { inner_->copy(to, from, n); }
  void zero(void* d, std::size_t n) override { inner_->zero(d, n); }
  void synchronize() override { inner_->synchronize(); }
  LinearHandle prepare_linear(const LinearSource& s) override { return inner_->prepare_linear(s); }
  LinearHandle prepare_embedding(const LinearSource& s) override { return inner_->prepare_embedding(s); }

  void embed_rows(const EmbedRowsParams& p) override { step(), inner_->embed_rows(p); }
  void rms_norm(const RmsNormParams& p) override { step(), inner_->rms_norm(p); }
  void gated_rms_norm(const GatedRmsNormParams& p) override { step(), inner_->gated_rms_norm(p); }
  void linear(const LinearParams& p) override { step(), inner_->linear(p); }
  void selected_rows(const SelectedRowsParams& p) override { step(), inner_->selected_rows(p); }
  void gated_linear(const GatedLinearParams& p) override { step(), inner_->gated_linear(p); }
  void swiglu(const SwigluParams& p) override { step(), inner_->swiglu(p); }
  void add_rows(const AddRowsParams& p) override { step(), inner_->add_rows(p); }
  void attention_prepare(const AttentionPrepareParams& p) override { step(), inner_->attention_prepare(p); }
  void attend(const AttendParams& p) override { step(), inner_->attend(p); }
  void delta_prepare(const DeltaPrepareParams& p) override { step(), inner_->delta_prepare(p); }
  void delta_step(const DeltaStepParams& p) override { step(), inner_->delta_step(p); }
  void delta_replay(const DeltaReplayParams& p) override { step(), inner_->delta_replay(p); }
  void advance_window(const AdvanceWindowParams& p) override { step(), inner_->advance_window(p); }
  void route_experts(const RouteExpertsParams& p) override { step(), inner_->route_experts(p); }
  void expert_mlp(const ExpertMlpParams& p) override { step(), inner_->expert_mlp(p); }
  void argmax_rows(const ArgmaxRowsParams& p) override { step(), inner_->argmax_rows(p); }
  void grouped_rms_norm(const GroupedRmsNormParams& p) override { step(), inner_->grouped_rms_norm(p); }
  void stream_silu(const StreamSiluParams& p) override { step(), inner_->stream_silu(p); }
  void mix_streams(const MixStreamsParams& p) override { step(), inner_->mix_streams(p); }
  void add_to_streams(const AddToStreamsParams& p) override { step(), inner_->add_to_streams(p); }
  void ngram_gate(const NgramGateParams& p) override { step(), inner_->ngram_gate(p); }
  void ngram_conv(const NgramConvParams& p) override { step(), inner_->ngram_conv(p); }
  void index_prepare(const IndexPrepareParams& p) override { step(), inner_->index_prepare(p); }
  void select_blocks(const SelectBlocksParams& p) override { step(), inner_->select_blocks(p); }
  void attend_blocks(const AttendBlocksParams& p) override { step(), inner_->attend_blocks(p); }

 private:
  void step() {
    if (countdown_ == 0 || --countdown_ > 0) return;
    fired_ = true;
    throw Error(ErrorCode::kDevice, "planted fault: expected a working device, got a failing one");
  }

  std::unique_ptr<Ops> inner_;
  int countdown_ = 0;
  bool fired_ = false;
};

}  // namespace mererun::testing
