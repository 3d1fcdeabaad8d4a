#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/forwarding_ops.h"

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
class TimedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  /// The totals since the last call.
  std::map<std::string, CallTotals> take();
  /// Of all weights that were prepared for products.
  std::size_t weight_bytes() const { return weight_bytes_; }

  // A download is part of what the caller does with the results: it is not timed.
  void upload(void* device, const void* host, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  LinearHandle prepare_linear(const LinearSource& source) override;

  void linear(const LinearParams& p) override;
  void gated_linear(const GatedLinearParams& p) override;
  void attend(const AttendParams& p) override;
  void delta_step(const DeltaStepParams& p) override;
  void delta_rule(const DeltaRuleParams& p) override { Ops::delta_rule(p); }  // its parts are timed
  void delta_replay(const DeltaReplayParams& p) override;
  void expert_mlp(const ExpertMlpParams& p) override;

 private:
  void around(std::string_view op, const std::function<void()>& call) override;
  template <typename F>
  void timed(const std::string& kind, const CallTotals& counted, F&& call);
  const std::string& label(const LinearWeight* weight) const { return labels_.at(weight); }

  std::map<std::string, CallTotals> totals_;
  std::size_t weight_bytes_ = 0;
  std::map<const LinearWeight*, std::string> labels_;  // the last word of a weight's module path
};

}  // namespace mererun::bench
