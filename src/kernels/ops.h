#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "device/buffer.h"
#include "kernels/attention.h"
#include "kernels/delta.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/ngram.h"
#include "kernels/norm.h"
#include "kernels/on_converted.h"
#include "kernels/sparse_attention.h"
#include "kernels/streams.h"

namespace mererun {

/// out[t] = a[t] + b[t].  All [T, n] f32; out may alias either.
struct AddRowsParams {
  TensorView a, b, out;
};

/// Index of the largest value of each row, lowest index on ties; -1 where the row holds a NaN or +infinity.
struct ArgmaxRowsParams {
  TensorView logits;  // [T, V] f32
  TensorView ids;     // out [1, T] i32
};

/// The operations a model is made of, on one device. Every backend computes the same bits
/// (docs/exactness.md): the result of a row depends on that row, the weights and the caches before it, never
/// on the rows beside it.
///
/// Calls are ordered; results may be read after `synchronize` or through `download`. Views point into memory
/// of `allocate` (or, on the CPU, any host memory). Params are checked by kernels/validate.h:
/// kInvalidArgument.
///
/// Thread-safety: one thread at a time.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string_view name() const = 0;  // "reference", "cpu", "cuda"
  /// True where results lie in host memory: they may be read in place once a call returned.
  virtual bool is_host() const { return false; }

  /// Zeroed memory of the device. Errors: kOutOfMemory.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void zero(void* device, std::size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Lets the device begin on what was called so far, before the caller waits for something else. The base
  /// class does nothing: calls have begun already.
  virtual void submit() {}

  /// Converts a weight for this backend; the source must outlive the result (a backend may keep reading it).
  /// Errors: kUnsupported for a layout the backend does not serve, naming source.name.
  virtual LinearHandle prepare_linear(const LinearSource& source) = 0;
  /// The same for a matrix that only embed_rows reads: a backend need not convert it. Errors: as above.
  virtual LinearHandle prepare_embedding(const LinearSource& source) = 0;

  virtual void embed_rows(const EmbedRowsParams& p) = 0;
  virtual void rms_norm(const RmsNormParams& p) = 0;
  virtual void gated_rms_norm(const GatedRmsNormParams& p) = 0;
  virtual void linear(const LinearParams& p) = 0;
  /// The base class computes every row; a backend may compute only those asked for.
  virtual void selected_rows(const SelectedRowsParams& p);
  virtual void gated_linear(const GatedLinearParams& p) = 0;
  virtual void swiglu(const SwigluParams& p) = 0;
  virtual void add_rows(const AddRowsParams& p) = 0;
  virtual void attention_prepare(const AttentionPrepareParams& p) = 0;
  virtual void attend(const AttendParams& p) = 0;
  virtual void delta_prepare(const DeltaPrepareParams& p) = 0;
  virtual void delta_step(const DeltaStepParams& p) = 0;
  /// The base class calls the three; a backend may need fewer launches for few rows.
  virtual void delta_rule(const DeltaRuleParams& p);
  virtual void delta_replay(const DeltaReplayParams& p) = 0;
  virtual void advance_window(const AdvanceWindowParams& p) = 0;
  virtual void route_experts(const RouteExpertsParams& p) = 0;
  virtual void expert_mlp(const ExpertMlpParams& p) = 0;
  virtual void argmax_rows(const ArgmaxRowsParams& p) = 0;

  // Flash-Next only. The base class refuses them: kUnsupported, naming op and backend.
  virtual void grouped_rms_norm(const GroupedRmsNormParams& p);
  virtual void stream_silu(const StreamSiluParams& p);
  virtual void mix_streams(const MixStreamsParams& p);
  virtual void add_to_streams(const AddToStreamsParams& p);
  virtual void ngram_gate(const NgramGateParams& p);
  virtual void ngram_conv(const NgramConvParams& p);
  virtual void index_prepare(const IndexPrepareParams& p);
  virtual void select_blocks(const SelectBlocksParams& p);
  virtual void attend_blocks(const AttendBlocksParams& p);

 protected:
  /// The shared expert of expert_mlp by gated_linear and linear, into its out_scratch; nothing without one.
  void run_shared_expert(const ExpertMlpParams& p);
};

/// Plain loops in the order of the contract: the definition every other backend must reproduce bit for bit.
std::unique_ptr<Ops> make_reference_ops();

/// Instruction sets with kernels of their own. kAuto: the widest that the machine has.
enum class CpuIsa { kAuto, kPortable, kAvx2, kAvx512, kAvx512Vnni, kNeon };

struct CpuOptions {
  int threads = 0;  // 0: one per physical core
  CpuIsa isa = CpuIsa::kAuto;
  OnConverted on_converted;
};
/// SIMD kernels with run-time dispatch over a persistent thread pool. Errors: kUnsupported for an instruction
/// set that this machine lacks.
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

struct CudaOptions {
  int device = 0;
  OnConverted on_converted;
};
/// CUDA kernels on one GPU of compute capability 8.0 or later. Errors: kUnsupported in a build without CUDA
/// or without such a device; kDevice.
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options);
/// GPUs that make_cuda_ops can be asked for; 0 in a build without CUDA and without a driver.
int cuda_device_count();

}  // namespace mererun
