#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/affine_linear.h"
#include "kernels/cuda/coded_rows.h"
#include "kernels/cuda/cuda_weight.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/expert_list.h"
#include "kernels/cuda/few_experts.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sparse.h"
#include "kernels/cuda/weight_upload.h"
#include "kernels/cuda_device.h"
#include "kernels/ops.h"

namespace mererun::cuda {

/// The CUDA backend: every op queues kernels on one stream and returns; errors of a kernel surface in a later
/// call. Values that index memory (ids, positions) lie on the device and are not checked: callers pass what
/// they made.
class CudaOps final : public Ops {
 public:
  CudaOps(const CudaOptions& options, CudaGraphs graphs);
  ~CudaOps() override;

  std::string_view name() const override { return "cuda"; }
  Buffer allocate(std::size_t bytes) override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void synchronize() override;
  void submit() override { flush(); }
  LinearHandle prepare_linear(const LinearSource& source) override;
  LinearHandle prepare_embedding(const LinearSource& source) override;

  void embed_rows(const EmbedRowsParams& p) override;
  void rms_norm(const RmsNormParams& p) override;
  void gated_rms_norm(const GatedRmsNormParams& p) override;
  void linear(const LinearParams& p) override;
  void gated_linear(const GatedLinearParams& p) override;
  void swiglu(const SwigluParams& p) override;
  void add_rows(const AddRowsParams& p) override;
  void attention_prepare(const AttentionPrepareParams& p) override;
  void attend(const AttendParams& p) override;
  void delta_prepare(const DeltaPrepareParams& p) override;
  void delta_step(const DeltaStepParams& p) override;
  void delta_rule(const DeltaRuleParams& p) override;
  void delta_replay(const DeltaReplayParams& p) override;
  void advance_window(const AdvanceWindowParams& p) override;
  void route_experts(const RouteExpertsParams& p) override;
  void expert_mlp(const ExpertMlpParams& p) override;
  void argmax_rows(const ArgmaxRowsParams& p) override;
  // cuda_flash.cc
  void grouped_rms_norm(const GroupedRmsNormParams& p) override;
  void stream_silu(const StreamSiluParams& p) override;
  void mix_streams(const MixStreamsParams& p) override;
  void add_to_streams(const AddToStreamsParams& p) override;
  void ngram_gate(const NgramGateParams& p) override;
  void ngram_conv(const NgramConvParams& p) override;
  void index_prepare(const IndexPrepareParams& p) override;
  void select_blocks(const SelectBlocksParams& p) override;
  void attend_blocks(const AttendBlocksParams& p) override;

  const DeviceInfo& device() const { return device_; }
  const Stream& stream() const { return stream_; }
  /// Null without graphs.
  const LaunchQueue* queue() const { return queue_.get(); }

 private:
  /// Declares the outputs of the op at hand: coded forms of what lies there are void.
  template <typename... Views>
  void writes(const Views&... views) {
    settle();
    (coded_.forget(views), ...);
  }
  /// out[p] = weight[expert of p] · x[row of p], x in f32.
  ActivationCodes code_experts(const AffineView& weight, const ExpertList& list, ExpertRows rows,
                               const TensorView& x);
  /// expert_mlp of a few rows in one launch, the choice of experts that waits included; false if it does not
  /// serve them.
  bool mix_few_rows(const ExpertMlpParams& p);
  void multiply_experts(const CudaWeight& weight, const ExpertList& list, ExpertRows rows,
                        const TensorView& x, const TensorView& out);

  /// Keeps a replay or window move, which changes `state`, for the launch it shares with calls of its shape.
  template <typename Params>
  void put_off(std::vector<Params>& calls, const Params& p, TensorView Params::*state);
  /// Launches the replays and window moves that were put off: a commit calls them layer by layer, and layers
  /// of one shape share a launch; and a choice of experts, which the kernel of the experts did not make.
  void settle();
  /// Hands everything to the driver.
  void flush();

  DeviceInfo device_;
  Stream stream_;
  std::shared_ptr<LaunchQueue> queue_;  // null: no graphs; also held by buffers
  LaunchContext context_, direct_;      // direct_: past the queue
  OnConverted on_converted_;
  WeightUpload weights_;
  CodedRows coded_;
  AffineScratch affine_;
  // Of one linear call: targets not launched yet, and those of the next launch.
  std::vector<const LinearParams::Target*> left_;
  std::vector<AffineTarget> together_;
  std::vector<DeltaReplayParams> replays_;
  std::vector<AdvanceWindowParams> windows_;
  std::optional<RouteExpertsParams> route_;  // put off until the experts are called
  bool state_is_settled_ = false;            // the last kernel wrote no delta state
  DeviceScratch argmax_parts_, attend_parts_, expert_ints_, expert_gate_, expert_up_, expert_out_,
      block_scores_;
  FewExpertsScratch few_experts_;
  SparseScratch sparse_;
};

}  // namespace mererun::cuda
