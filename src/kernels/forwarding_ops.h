#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/ops.h"

namespace mererun {

/// The base of backends that stand in front of another one: hands every call to it, each operation through
/// `around`. A derived class overrides what it changes.
class ForwardingOps : public Ops {
 public:
  explicit ForwardingOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  bool is_host() const override { return inner_->is_host(); }
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void upload(void* device, const void* host, std::size_t n) override { inner_->upload(device, host, n); }
  void download(void* host, const void* device, std::size_t n) override { inner_->download(host, device, n); }
  void copy(void* to, const void* from, std::size_t bytes) override { inner_->copy(to, from, bytes); }
  void zero(void* device, std::size_t bytes) override { inner_->zero(device, bytes); }
  void synchronize() override { inner_->synchronize(); }
  void submit() override { inner_->submit(); }
  LinearHandle prepare_linear(const LinearSource& s) override { return inner_->prepare_linear(s); }
  LinearHandle prepare_embedding(const LinearSource& s) override { return inner_->prepare_embedding(s); }

  void embed_rows(const EmbedRowsParams& p) override { forward("embed_rows", &Ops::embed_rows, p); }
  void rms_norm(const RmsNormParams& p) override { forward("rms_norm", &Ops::rms_norm, p); }
  void gated_rms_norm(const GatedRmsNormParams& p) override {
    forward("gated_rms_norm", &Ops::gated_rms_norm, p);
  }
  void linear(const LinearParams& p) override { forward("linear", &Ops::linear, p); }
  void selected_rows(const SelectedRowsParams& p) override {
    forward("selected_rows", &Ops::selected_rows, p);
  }
  void gated_linear(const GatedLinearParams& p) override { forward("gated_linear", &Ops::gated_linear, p); }
  void swiglu(const SwigluParams& p) override { forward("swiglu", &Ops::swiglu, p); }
  void add_rows(const AddRowsParams& p) override { forward("add_rows", &Ops::add_rows, p); }
  void attention_prepare(const AttentionPrepareParams& p) override {
    forward("attention_prepare", &Ops::attention_prepare, p);
  }
  void attend(const AttendParams& p) override { forward("attend", &Ops::attend, p); }
  void delta_prepare(const DeltaPrepareParams& p) override {
    forward("delta_prepare", &Ops::delta_prepare, p);
  }
  void delta_step(const DeltaStepParams& p) override { forward("delta_step", &Ops::delta_step, p); }
  void delta_rule(const DeltaRuleParams& p) override { forward("delta_rule", &Ops::delta_rule, p); }
  void delta_replay(const DeltaReplayParams& p) override { forward("delta_replay", &Ops::delta_replay, p); }
  void advance_window(const AdvanceWindowParams& p) override {
    forward("advance_window", &Ops::advance_window, p);
  }
  void route_experts(const RouteExpertsParams& p) override {
    forward("route_experts", &Ops::route_experts, p);
  }
  void expert_mlp(const ExpertMlpParams& p) override { forward("expert_mlp", &Ops::expert_mlp, p); }
  void argmax_rows(const ArgmaxRowsParams& p) override { forward("argmax_rows", &Ops::argmax_rows, p); }
  void grouped_rms_norm(const GroupedRmsNormParams& p) override {
    forward("grouped_rms_norm", &Ops::grouped_rms_norm, p);
  }
  void stream_silu(const StreamSiluParams& p) override { forward("stream_silu", &Ops::stream_silu, p); }
  void mix_streams(const MixStreamsParams& p) override { forward("mix_streams", &Ops::mix_streams, p); }
  void add_to_streams(const AddToStreamsParams& p) override {
    forward("add_to_streams", &Ops::add_to_streams, p);
  }
  void ngram_gate(const NgramGateParams& p) override { forward("ngram_gate", &Ops::ngram_gate, p); }
  void ngram_conv(const NgramConvParams& p) override { forward("ngram_conv", &Ops::ngram_conv, p); }
  void index_prepare(const IndexPrepareParams& p) override {
    forward("index_prepare", &Ops::index_prepare, p);
  }
  void select_blocks(const SelectBlocksParams& p) override {
    forward("select_blocks", &Ops::select_blocks, p);
  }
  void attend_blocks(const AttendBlocksParams& p) override {
    forward("attend_blocks", &Ops::attend_blocks, p);
  }

 protected:
  Ops& inner() { return *inner_; }
  /// `call` does the operation named `op`.
  virtual void around([[maybe_unused]] std::string_view op, const std::function<void()>& call) { call(); }

 private:
  template <typename Params>
  void forward(std::string_view op, void (Ops::*operation)(const Params&), const Params& p) {
    around(op, [&] { (inner_.get()->*operation)(p); });
  }

  std::unique_ptr<Ops> inner_;
};

}  // namespace mererun
