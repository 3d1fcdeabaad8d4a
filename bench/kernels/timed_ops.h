#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/ops.h"

namespace mererun::bench {

/// What calls of one kind did.
struct CallTotals {
  std::int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;     // weights, keys, values and states that a call must read, each once
  double products = 0;  // multiply-adds of rows with weights

  CallTotals& operator+=(const CallTotals& other);
};

/// A backend on the host's processor whose calls are timed and counted, by kind: an op's name, for products
/// with that of the weights.
class TimedOps final : public Ops {
 public:
  explicit TimedOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  /// The totals since the last call.
  std::map<std::string, CallTotals> take();
  /// Of all weights that were prepared for products.
  std::size_t weight_bytes() const { return weight_bytes_; }

  std::string_view name() const override { return ops_->name(); }
  bool is_host() const override { return ops_->is_host(); }
  Buffer allocate(std::size_t bytes) override { return ops_->allocate(bytes); }
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void synchronize() override { ops_->synchronize(); }
  LinearHandle prepare_linear(const LinearSource& source) override;
  LinearHandle prepare_embedding(const LinearSource& source) override;

  void embed_rows(const EmbedRowsParams& p) override;
  void rms_norm(const RmsNormParams& p) override;
  void gated_rms_norm(const GatedRmsNormParams& p) override;
  void linear(const LinearParams& p) override;
  void selected_rows(const SelectedRowsParams& p) override;
  void gated_linear(const GatedLinearParams& p) override;
  void swiglu(const SwigluParams& p) override;
  void add_rows(const AddRowsParams& p) override;
  void attention_prepare(const AttentionPrepareParams& p) override;
  void attend(const AttendParams& p) override;
  void delta_prepare(const DeltaPrepareParams& p) override;
  void delta_step(const DeltaStepParams& p) override;
  void delta_replay(const DeltaReplayParams& p) override;
  void advance_window(const AdvanceWindowParams& p) override;
  void route_experts(const RouteExpertsParams& p) override;
  void expert_mlp(const ExpertMlpParams& p) override;
  void argmax_rows(const ArgmaxRowsParams& p) override;

 private:
  template <typename F>
  void timed(const std::string& kind, const CallTotals& counted, F&& call);
  const std::string& label(const LinearWeight* weight) const { return labels_.at(weight); }

  std::unique_ptr<Ops> ops_;
  std::map<std::string, CallTotals> totals_;
  std::size_t weight_bytes_ = 0;
  std::map<const LinearWeight*, std::string> labels_;  // the last word of a weight's module path
};

}  // namespace mererun::bench
