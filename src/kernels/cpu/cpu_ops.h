#pragma once

#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/row_forms.h"
#include "kernels/cpu/scratch.h"
#include "kernels/gathered_head.h"
#include "kernels/ops.h"

namespace mererun::cpu {

/// The CPU backend: kernels of the machine's instruction set, work split statically over a thread pool. How
/// the work is split never changes a bit: every output value is computed by one worker in the contract's
/// order.
class CpuOps final : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options);

  std::string_view name() const override { return "cpu"; }
  CpuIsa isa() const { return kernels_.isa; }
  bool is_host() const override { return true; }
  Buffer allocate(std::size_t bytes) override;
  void upload(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void synchronize() override {}
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
  /// body over [0, n) on all workers, or on the caller alone when `elements` is too little to share.
  template <typename F>
  void share(int n, std::int64_t elements, F&& body);
  /// body(row, first, last) over column ranges of every row.
  template <typename F>
  void share_columns(int rows, int columns, std::int64_t elements, F&& body);
  /// Scratch of at least the bytes for `shape`, one block a worker.
  void reserve_workers(const ScratchShape& shape);
  WorkerScratch worker(int w);

  void attend_by_tile(const AttendParams& p, int tiles, int queries);

  // Assignments (row, expert) of one expert_mlp call, sorted by expert, then row.
  struct ExpertSpan {
    int expert, first, count;
  };
  /// Rows in the order of the assignments: each expert's are contiguous, in the layout of RowsView.
  struct GatheredForm {
    int group = 0;  // 0: planar
    Scratch codes, scales;
  };
  // expert_mlp, in order.
  void sort_by_expert(const ExpertMlpParams& p);
  void expert_hidden(const ExpertMlpParams& p);
  void expert_output(const ExpertMlpParams& p);
  RowsView span_rows(const GatheredForm& form, const ExpertSpan& span, int in) const;
  void allocate_form(GatheredForm& form, const PackedView& weight, int rows);
  void gather_form(GatheredForm& form, const PackedView& weight, int rows);
  void code_hidden(const PackedView& down, int rows);

  const KernelTable& kernels_;
  ThreadPool pool_;
  OnConverted on_converted_;
  std::vector<Scratch> workers_;
  RowForms rows_;
  std::vector<AttendJob> attend_jobs_;
  std::vector<float*> loose_tiles_;
  Scratch partials_;
  std::vector<LinearJob> jobs_;
  std::vector<const PackedView*> views_;

  std::vector<ExpertSpan> spans_;
  std::vector<int> next_;
  Scratch assigned_rows_, assigned_weights_, hidden_, sums_;
  GatheredForm gate_form_, up_form_, down_form_;

  Scratch index_scores_;
  std::vector<std::vector<std::uint64_t>> index_keys_;  // one a worker
  std::vector<GatheredHead> gathered_;                  // one a worker
};

}  // namespace mererun::cpu
