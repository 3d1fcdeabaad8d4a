#pragma once

#include <memory>
#include <vector>

#include "kernels/gathered_head.h"
#include "kernels/ops.h"
#include "kernels/reference/loops.h"

namespace mererun::reference {

/// A weight of the reference backend: the checkpoint's arrays, and for affine layers the codes unpacked to
/// one byte each (embeddings read the bit stream in place).
class ReferenceWeight final : public LinearWeight {
 public:
  enum class Codes { kUnpacked, kInPlace };
  ReferenceWeight(const LinearSource& source, Codes codes);

  std::size_t owned_bytes() const override { return codes_.size(); }
  WeightData data() const { return {&source_, codes_.empty() ? nullptr : codes_.data()}; }

 private:
  LinearSource source_;
  std::vector<std::uint8_t> codes_;
};

/// The definition of every op: plain loops in the order of the contract, on host memory, one thread.
///
/// Two builds of the same loops give the same bits: one for any machine, one with hardware fma where it
/// exists.
class ReferenceOps final : public Ops {
 public:
  explicit ReferenceOps(const Loops& loops) : loops_(loops) {}

  std::string_view name() const override { return "reference"; }
  bool is_host() const override { return true; }

  Buffer allocate(std::size_t bytes) override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void synchronize() override {}

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
  void delta_replay(const DeltaReplayParams& p) override;
  void advance_window(const AdvanceWindowParams& p) override;
  void route_experts(const RouteExpertsParams& p) override;
  void expert_mlp(const ExpertMlpParams& p) override;
  void argmax_rows(const ArgmaxRowsParams& p) override;
  void grouped_rms_norm(const GroupedRmsNormParams& p) override;
  void stream_silu(const StreamSiluParams& p) override;
  void mix_streams(const MixStreamsParams& p) override;
  void add_to_streams(const AddToStreamsParams& p) override;
  void ngram_gate(const NgramGateParams& p) override;
  void ngram_conv(const NgramConvParams& p) override;
  void index_prepare(const IndexPrepareParams& p) override;
  void select_blocks(const SelectBlocksParams& p) override;
  void attend_blocks(const AttendBlocksParams& p) override;

 private:
  /// Working memory for at least `values` floats and a quantised [rows, in] input of `source`.
  Scratch scratch(std::size_t values);
  Scratch linear_scratch(const LinearSource& source, int rows);
  void multiply(const LinearWeight& weight, int expert, TensorView x, TensorView out, TensorView residual);

  Loops loops_;
  std::vector<float> values_;
  std::vector<std::int16_t> codes_;
  std::vector<float> group_d_, group_sum_;
  GatheredHead gathered_;
};

/// The build of the loops that needs nothing of the machine, and the one for AVX2 and FMA (x86-64 only).
std::unique_ptr<Ops> make_baseline_reference_ops();
/// Null where the machine or the build lacks the instructions.
std::unique_ptr<Ops> make_fused_reference_ops();

}  // namespace mererun::reference
