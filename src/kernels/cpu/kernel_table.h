#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/packed_view.h"
#include "kernels/ops.h"

namespace mererun::cpu {

/// Rows of activations that one pass over a panel serves; longer inputs take several passes.
inline constexpr int kMaxPassRows = 64;

/// The longest row that a worker keeps as byte planes (isa/bytes.h).
inline constexpr int kPlaneCodes = 64 * 1024;

/// Scratch of one worker, sized by worker_scratch_bytes().
struct WorkerScratch {
  std::byte* data = nullptr;
};

/// A product's destination: out[t] = y, or residual[t] + y.
struct LinearJob {
  const PackedView* weight = nullptr;
  RowsView rows;
  TensorView out;
  TensorView residual;  // or empty
};

/// out[t] = silu(gate · x[t]) ⊙ (up · x[t]).
struct GatedJob {
  const PackedView* gate = nullptr;
  const PackedView* up = nullptr;
  RowsView gate_rows, up_rows;
  int expert = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

/// acc[row_of[i]] = fma(weight_of[i], down · h[i], acc[row_of[i]]) for the rows of one expert.
struct CombineJob {
  const PackedView* down = nullptr;
  RowsView rows;
  int expert = 0;
  const std::int32_t* row_of = nullptr;
  const float* weight_of = nullptr;
  float* acc = nullptr;
  std::int64_t acc_stride = 0;
};

/// One row of a matrix as the checkpoint stores it; the pointers may be unaligned.
struct StoredRow {
  WeightFormat format = WeightFormat::kDense;
  DType dtype = DType::kBF16;
  int in = 0;
  int bits = 0, group = 0;
  const std::byte* weight = nullptr;  // bit stream, or elements
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
};

/// One KV head's attention over a range of rows and tiles. A query is one head of one row; there are
/// (last_row - first_row) * heads / kv_heads of them, heads fastest. A partial is m, l, o of every query:
/// [queries][2 + head_dim].
struct AttendJob {
  const AttendParams* params = nullptr;
  int kv_head = 0;
  int first_row = 0, last_row = 0;    // rows [first, last) of the pass
  int first_tile = 0, last_tile = 0;  // tiles [first, last)
  /// Partials of all segments; null: fold them and write out.
  float* segments = nullptr;
  /// With `segments`, by tile: where a tile is kept on its own because another worker computes the tiles of
  /// its segment before it; null: it is folded into its segment.
  float* const* loose = nullptr;
};

/// The kernels of one instruction set. Every function is thread-safe on disjoint ranges.
struct KernelTable {
  CpuIsa isa;  // never kAuto

  /// Codes one activation row per group; the strides are between groups.
  void (*quantise_row)(const float* x, int in, int group, std::int16_t* codes, std::int64_t code_stride,
                       float* scales, std::int64_t scale_stride);
  void (*planar_row)(const float* x, int in, float* planar);
  /// Output panels [begin, end).
  void (*linear_panels)(const LinearJob& job, int begin, int end, WorkerScratch scratch);
  void (*gated_panels)(const GatedJob& job, int begin, int end, WorkerScratch scratch);
  void (*combine_panels)(const CombineJob& job, int begin, int end, WorkerScratch scratch);
  /// One stored row, widened: fma(s, q, b), or the element.
  void (*embed_row)(const StoredRow& row, float* out);

  // Row ranges [begin, end).
  void (*rms_norm)(const RmsNormParams& p, int begin, int end);
  void (*gated_rms_norm)(const GatedRmsNormParams& p, int begin, int end);
  void (*add_rows)(const AddRowsParams& p, int begin, int end);
  void (*finish_experts)(const ExpertMlpParams& p, const float* acc, std::int64_t acc_stride, int begin,
                         int end);
  void (*route_experts)(const RouteExpertsParams& p, int begin, int end, WorkerScratch scratch);
  /// Channels [first, last) of row t.
  void (*swiglu)(const SwigluParams& p, int t, int first, int last);
  /// The largest of n values: its lowest index, or -1 if one is NaN.
  std::int32_t (*argmax)(const float* x, int n);

  /// Items [begin, end): row t has heads + kv_heads of them.
  void (*attention_prepare)(const AttentionPrepareParams& p, int begin, int end, WorkerScratch scratch);
  void (*attend)(const AttendJob& job, WorkerScratch scratch);
  /// Folds loose tiles into their segments, and the segments of queries [begin, end), into out.
  void (*fold_segments)(const AttendJob& job, int begin, int end, WorkerScratch scratch);

  /// Items [begin, end): row t has key_heads + value_heads of them.
  void (*delta_prepare)(const DeltaPrepareParams& p, int begin, int end);
  /// Column blocks [begin, end) of all value heads; a head has ceil(value_dim / 16) of them.
  void (*delta_step)(const DeltaStepParams& p, int begin, int end, WorkerScratch scratch);
  void (*delta_replay)(const DeltaReplayParams& p, int begin, int end);

  // Flash-Next. Items [begin, end): a row has `groups` (norm) or 4 of them.
  void (*grouped_rms_norm)(const GroupedRmsNormParams& p, int begin, int end);
  void (*add_to_streams)(const AddToStreamsParams& p, int begin, int end);
  void (*ngram_gate)(const NgramGateParams& p, int begin, int end);
  void (*stream_silu)(const StreamSiluParams& p, int begin, int end);  // rows
  /// Channels [first, last) of row t.
  void (*mix_streams)(const MixStreamsParams& p, int t, int first, int last);
  void (*ngram_conv)(const NgramConvParams& p, int t, int first, int last);
  /// Items [begin, end): row t has heads + 1 of them.
  void (*index_append)(const IndexPrepareParams& p, int begin, int end);
  /// Complete blocks [begin, end); 2 index_dim floats of scratch.
  void (*index_pool)(const IndexPrepareParams& p, int begin, int end, WorkerScratch scratch);
  /// Scores of row t for every block of pages [begin, end): scores[64 * page + block].
  void (*index_scores)(const SelectBlocksParams& p, int t, int begin, int end, float* scores);
};

/// Bytes a worker needs for the largest of these shapes.
struct ScratchShape {
  int head_dim = 0;
  int queries = 0;  // rows * heads per KV head of one AttendJob
  int key_dim = 0;
  int experts = 0;
};
std::size_t worker_scratch_bytes(const ScratchShape& shape);

// Tables of this build. Calling into one whose instructions the machine lacks is undefined: see cpu_isa.h.
const KernelTable& portable_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512_vnni_kernels();
#endif
#if defined(__aarch64__)
const KernelTable& neon_kernels();
#endif

}  // namespace mererun::cpu
