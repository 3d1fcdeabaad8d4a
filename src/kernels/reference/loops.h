#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/delta.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/ngram.h"
#include "kernels/norm.h"
#include "kernels/ops.h"
#include "kernels/sparse_attention.h"
#include "kernels/streams.h"
#include "tensor/linear_source.h"

namespace mererun::reference {

/// One weight as the loops read it: the checkpoint's arrays, and the codes one a byte where they were
/// unpacked.
struct WeightData {
  const LinearSource* source = nullptr;
  const std::uint8_t* codes = nullptr;  // affine: [experts, out, in], or null (read from the bit stream)
};

/// Working memory of the loops, owned by the caller; sizes in elements.
struct Scratch {
  float* values = nullptr;        // see each loop
  std::int16_t* codes = nullptr;  // quantised rows [T, in]
  float* group_d = nullptr;       // [T, in / group]
  float* group_sum = nullptr;     // [T, in / group]
};

/// Floats of Scratch::values that each loop uses.
inline std::size_t linear_values(int in) { return 2 * static_cast<std::size_t>(in); }
inline std::size_t attend_values(int head_dim) { return static_cast<std::size_t>(head_dim) * (64 + 3); }
inline std::size_t delta_prepare_values(const DeltaShape& s) {
  return static_cast<std::size_t>(s.conv_channels());
}
inline std::size_t delta_step_values(const DeltaShape& s) {
  return static_cast<std::size_t>(s.key_dim + 2 * 16 + 1) * static_cast<std::size_t>(s.value_dim);
}

/// The loops of the numeric contract, as compiled for one instruction set. Params have been validated.
struct Loops {
  void (*embed_rows)(const EmbedRowsParams&, const WeightData&) = nullptr;
  /// out[t] = weight[expert] x[t], or residual[t] + that. Uses linear_values(in) and the quantised rows.
  void (*linear)(const WeightData& weight, int expert, TensorView x, TensorView out, TensorView residual,
                 const Scratch&) = nullptr;
  void (*swiglu)(const SwigluParams&) = nullptr;
  void (*add_rows)(const AddRowsParams&) = nullptr;
  void (*argmax_rows)(const ArgmaxRowsParams&) = nullptr;
  void (*rms_norm)(const RmsNormParams&) = nullptr;
  void (*gated_rms_norm)(const GatedRmsNormParams&) = nullptr;
  void (*attention_prepare)(const AttentionPrepareParams&, const Scratch&) = nullptr;  // head_dim values
  void (*attend)(const AttendParams&, const Scratch&) = nullptr;
  void (*delta_prepare)(const DeltaPrepareParams&, const Scratch&) = nullptr;
  void (*delta_step)(const DeltaStepParams&, const Scratch&) = nullptr;
  void (*delta_replay)(const DeltaReplayParams&) = nullptr;
  void (*advance_window)(const AdvanceWindowParams&) = nullptr;
  void (*route_experts)(const RouteExpertsParams&, const Scratch&) = nullptr;  // E values
  /// acc[t] = fma(weight[t], y[t], acc[t]) over one row.
  void (*accumulate_expert)(float weight, const float* y, float* acc, int n) = nullptr;
  /// out = residual + fma(sigmoid(shared_gate), shared, acc) over one row; without a shared expert residual +
  /// acc.
  void (*finish_experts)(const float* acc, const float* shared, const float* shared_gate,
                         const float* residual, float* out, int n) = nullptr;

  void (*grouped_rms_norm)(const GroupedRmsNormParams&) = nullptr;
  void (*stream_silu)(const StreamSiluParams&) = nullptr;
  void (*mix_streams)(const MixStreamsParams&) = nullptr;
  void (*add_to_streams)(const AddToStreamsParams&) = nullptr;
  void (*ngram_gate)(const NgramGateParams&) = nullptr;
  void (*ngram_conv)(const NgramConvParams&) = nullptr;
  void (*index_prepare)(const IndexPrepareParams&, const Scratch&) = nullptr;  // 2 index_dim values
  void (*select_blocks)(const SelectBlocksParams&, const Scratch&) = nullptr;  // one value per complete block
};

}  // namespace mererun::reference

// The files of the loops are compiled once per instruction set, each time inside the namespace that
// MERERUN_REFERENCE_BUILD names. They hold no inline function or template instantiation that could be shared
// between the builds and carry the wider instructions to a machine without them.
#if defined(MERERUN_REFERENCE_BUILD)
namespace mererun::reference::MERERUN_REFERENCE_BUILD {
void bind_linear(Loops& loops);
void bind_norm(Loops& loops);
void bind_attention(Loops& loops);
void bind_delta(Loops& loops);
void bind_experts(Loops& loops);
void bind_misc(Loops& loops);
void bind_streams(Loops& loops);
void bind_index(Loops& loops);
}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
#endif
