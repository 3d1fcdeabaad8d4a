#include "kernels/cuda/cuda_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/delta.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/expert_linear.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/rows.h"
#include "kernels/validate.h"

namespace mererun::cuda {

namespace {

constexpr std::size_t kCopiedByKernel = std::size_t{4} << 20;
constexpr int kCommonGroup = 64;  // the group size whose codes a norm leaves for the linears after it

const CudaWeight& own(const LinearWeight* weight) {
  const auto* mine = dynamic_cast<const CudaWeight*>(weight);
  if (mine == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, "linear weight", "one that the cuda backend prepared",
                  "another");
  }
  return *mine;
}

}  // namespace

CudaOps::CudaOps(const CudaOptions& options, CudaGraphs graphs)
    : device_(device_info(options.device)),
      context_{.stream = stream_.get(),
               .device = options.device,
               .multiprocessors = device_.multiprocessors,
               .shared_bytes_per_block = device_.shared_bytes_per_block,
               .early_start = device_.major >= 9,
               .has_bulk_copy = device_.major >= 9,
               .has_clusters = device_.major >= 9,
               .has_warpgroup_mma = device_.major == 9 && device_.minor == 0},
      direct_(context_),
      on_converted_(options.on_converted),
      weights_(direct_, stream_) {
  if (graphs == CudaGraphs::kOn) queue_ = std::make_shared<LaunchQueue>(stream_.get(), [this] { settle(); });
  context_.queue = queue_.get();
}

CudaOps::~CudaOps() {
  if (queue_) {
    queue_->flush_quietly();
    queue_->detach();  // buffers may outlive this
  }
  cudaStreamSynchronize(stream_.get());
}

Buffer CudaOps::allocate(std::size_t bytes) {
  Buffer memory = allocate_device(bytes);
  zero(memory.data(), bytes);
  if (!queue_ || bytes == 0) return memory;
  // Kernels that wait in the queue may use the memory: they go first.
  void* data = memory.data();
  auto owner = std::make_shared<Buffer>(std::move(memory));
  return Buffer(data, bytes, [queue = queue_, owner](void*) {
    queue->flush_quietly();
    *owner = Buffer();
  });
}

void CudaOps::flush() {
  settle();
  context_.flush();
}

void CudaOps::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  coded_.forget(device, bytes);
  flush();
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()), "cuda upload");
}

void CudaOps::download(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  flush();
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()), "cuda download");
  stream_.synchronize();
}

void CudaOps::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  settle();
  coded_.forget(to, bytes);
  if (queue_ && bytes <= kCopiedByKernel) {  // stays in line with the kernels around it
    run_copy_bytes(context_, to, from, bytes);
    return;
  }
  flush();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.get()), "cuda copy");
}

void CudaOps::zero(void* device, std::size_t bytes) {
  if (bytes == 0) return;
  coded_.forget(device, bytes);
  flush();
  check(cudaMemsetAsync(device, 0, bytes, stream_.get()), "cuda zero");
}

void CudaOps::synchronize() {
  flush();
  stream_.synchronize();
}

LinearHandle CudaOps::prepare_linear(const LinearSource& source) {
  validate(source);
  flush();
  auto weight = weights_.convert(source);
  tell_converted(on_converted_, source);
  return weight;
}

LinearHandle CudaOps::prepare_embedding(const LinearSource& source) {
  validate(source);
  flush();
  auto weight = weights_.copy_embedding(source);
  tell_converted(on_converted_, source);
  return weight;
}

void CudaOps::embed_rows(const EmbedRowsParams& p) {
  validate(p);
  const auto* weight = dynamic_cast<const CudaEmbedding*>(p.weight);
  if (weight == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, "embedding", "one that the cuda backend prepared", "another");
  }
  if (p.out.rows == 0) return;
  writes(p.out);
  run_embed_rows(context_, weight->stored(), p.ids.row<const int>(0), p.out);
}

void CudaOps::rms_norm(const RmsNormParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  writes(p.out);
  ActivationCodes codes;
  if (can_code_rms_norm(p.out.cols) && p.out.cols % kCommonGroup == 0 && p.out.data != p.x.data) {
    codes = coded_.prepare(context_, p.out, kCommonGroup, code_order(context_, p.out.rows));
  }
  run_rms_norm(context_, p, codes);
}

void CudaOps::gated_rms_norm(const GatedRmsNormParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  writes(p.out);
  ActivationCodes codes;
  if (can_code_gated_rms_norm(p.weight.cols))
    codes = coded_.prepare(context_, p.out, kCommonGroup, code_order(context_, p.out.rows));
  run_gated_rms_norm(context_, p, codes);
}

void CudaOps::linear(const LinearParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  // Affine targets of one layout share launches, whatever lies between them.
  left_.clear();
  for (const LinearParams::Target& target : p.targets) {
    const CudaWeight& weight = own(target.weight);
    writes(target.out);
    if (weight.is_affine()) {
      left_.push_back(&target);
    } else {
      run_dense(context_, weight.dense(), p.x, target.out, target.residual);
    }
  }
  while (!left_.empty()) {
    together_.clear();
    std::erase_if(left_, [&](const LinearParams::Target* target) {
      const AffineView& view = own(target->weight).affine();
      const bool fits =
          together_.size() < kMostTargets && (together_.empty() || together_[0].weight.same_layout(view));
      if (fits) together_.push_back({view, target->out, target->residual});
      return fits;
    });
    const AffineView& layout = together_[0].weight;
    run_affine(context_, affine_, together_,
               coded_.of(context_, p.x, layout.group, code_order(context_, layout, p.x.rows)));
  }
  state_is_settled_ = true;
}

void CudaOps::gated_linear(const GatedLinearParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  const CudaWeight& gate = own(p.gate);
  const CudaWeight& up = own(p.up);
  if (gate.is_affine() && up.is_affine() && can_pair(context_, gate.affine(), up.affine(), p.x.rows)) {
    writes(p.out);
    run_affine_gated(context_, affine_, gate.affine(), up.affine(),
                     coded_.of(context_, p.x, gate.affine().group, CodeOrder::kRows), p.out);
    return;
  }
  const LinearParams::Target targets[2] = {{p.gate, p.gate_scratch, {}}, {p.up, p.up_scratch, {}}};
  linear({.x = p.x, .targets = targets});
  swiglu({p.gate_scratch, p.up_scratch, p.out});
}

void CudaOps::swiglu(const SwigluParams& p) {
  validate(p);
  if (p.out.rows == 0 || p.out.cols == 0) return;
  writes(p.out);
  ActivationCodes codes;
  if (p.out.cols % kCommonGroup == 0)
    codes = coded_.prepare(context_, p.out, kCommonGroup, code_order(context_, p.out.rows));
  run_swiglu(context_, p, codes);
}

void CudaOps::add_rows(const AddRowsParams& p) {
  validate(p);
  if (p.out.rows == 0 || p.out.cols == 0) return;
  writes(p.out);
  run_add_rows(context_, p);
}

void CudaOps::attention_prepare(const AttentionPrepareParams& p) {
  validate(p);
  if (p.k.rows == 0) return;
  writes(p.q);
  run_attention_prepare(context_, p);
}

void CudaOps::attend(const AttendParams& p) {
  validate(p);
  if (p.q.rows == 0) return;
  writes(p.out);
  const AttendPlan plan =
      plan_attend(p.cache, p.heads, p.q.rows, context_.multiprocessors, context_.shared_bytes_per_block);
  run_attend(context_, p, plan, attend_parts_.get_array<float>(plan.partial_floats, context_));
}

void CudaOps::delta_prepare(const DeltaPrepareParams& p) {
  validate(p);
  if (p.inputs.rows == 0) return;
  writes(p.q, p.k, p.v, p.alpha, p.beta);
  run_delta_prepare(context_, p);
  state_is_settled_ = true;
}

void CudaOps::delta_step(const DeltaStepParams& p) {
  validate(p);
  if (p.q.rows == 0) return;
  const bool state_is_settled = state_is_settled_;
  writes(p.out, p.u, p.state);
  run_delta_step(context_, p, state_is_settled);
}

void CudaOps::delta_rule(const DeltaRuleParams& p) {
  if (p.prepare.inputs.rows == 0 || !can_fuse_delta_rule(p)) return Ops::delta_rule(p);
  validate(p.prepare);
  validate(p.step);
  validate(p.norm);
  const bool state_is_settled = state_is_settled_;
  writes(p.prepare.k, p.prepare.alpha, p.step.u, p.step.state, p.norm.out);
  run_delta_rule(context_, p,
                 coded_.prepare(context_, p.norm.out, kCommonGroup, code_order(context_, p.norm.out.rows)),
                 state_is_settled);
}

template <typename Params>
void CudaOps::put_off(std::vector<Params>& calls, const Params& p, TensorView Params::*state) {
  const bool fits = calls.empty() || (calls.size() < kMostReplays && same_shape(calls[0], p));
  const bool repeats = std::any_of(calls.begin(), calls.end(), [&](const Params& other) {
    return (other.*state).data == (p.*state).data;
  });
  if (!fits || repeats) settle();
  coded_.forget(p.*state);
  calls.push_back(p);
  if (queue_ == nullptr) settle();
}

void CudaOps::delta_replay(const DeltaReplayParams& p) {
  validate(p);
  if (p.k.rows != 0) put_off(replays_, p, &DeltaReplayParams::state);
}

void CudaOps::advance_window(const AdvanceWindowParams& p) {
  validate(p);
  if (p.inputs.rows != 0 && p.window.rows != 0) put_off(windows_, p, &AdvanceWindowParams::window);
}

void CudaOps::settle() {
  state_is_settled_ = false;
  if (route_) run_route_experts(context_, *std::exchange(route_, std::nullopt));
  if (replays_.empty() && windows_.empty()) return;
  struct Clear {  // a launch that fails must not come again
    CudaOps& ops;
    ~Clear() {
      ops.replays_.clear();
      ops.windows_.clear();
    }
  } clear{*this};
  if (!replays_.empty()) run_delta_replay(context_, replays_);
  if (!windows_.empty()) run_advance_window(context_, windows_);
}

void CudaOps::route_experts(const RouteExpertsParams& p) {
  validate(p);
  if (p.logits.rows == 0) return;
  writes(p.ids, p.weights);
  route_ = p;
  if (queue_ == nullptr || !p.forced_ids.empty()) settle();
}

ActivationCodes CudaOps::code_experts(const AffineView& weight, const ExpertList& list, ExpertRows rows,
                                      const TensorView& x) {
  const CodeOrder order = expert_code_order(context_, weight, list);
  return order == CodeOrder::kPlanes ? coded_.of_entries(context_, x, weight.group, list, rows)
                                     : coded_.of(context_, x, weight.group, order);
}

void CudaOps::multiply_experts(const CudaWeight& weight, const ExpertList& list, ExpertRows rows,
                               const TensorView& x, const TensorView& out) {
  if (weight.is_affine()) {
    const AffineView& view = weight.affine();
    run_affine_experts(context_, view, list, rows, code_experts(view, list, rows, x), out);
  } else {
    run_dense_experts(context_, weight.dense(), list, rows, x, out);
  }
}

bool CudaOps::mix_few_rows(const ExpertMlpParams& p) {
  const auto views = [](const LinearWeight* gate, const LinearWeight* up, const LinearWeight* down) {
    return ExpertViews{own(gate).affine(), own(up).affine(), own(down).affine()};
  };
  const ExpertViews experts = views(p.gate, p.up, p.down);
  if (!can_run_few_experts(context_, experts, p)) return false;
  ExpertViews shared;
  if (!p.shared.empty()) shared = views(p.shared.gate, p.shared.up, p.shared.down);
  std::optional<RouteExpertsParams> route;
  if (route_ && can_choose_few(*route_) && is_same(route_->ids, p.ids) && is_same(route_->weights, p.weights))
    route = std::exchange(route_, std::nullopt);
  const bool joins = !p.shared.empty() && can_join_experts(experts, shared);
  if (!joins) run_shared_expert(p);
  writes(p.out);
  run_few_experts(context_, few_experts_, experts, joins ? &shared : nullptr, p,
                  coded_.of(context_, p.x, experts.gate.group, CodeOrder::kRows), route ? &*route : nullptr);
  return true;
}

void CudaOps::expert_mlp(const ExpertMlpParams& p) {
  validate(p);
  if (p.x.rows == 0 || mix_few_rows(p)) return;
  run_shared_expert(p);
  writes(p.out);
  const CudaWeight& gate = own(p.gate);
  const CudaWeight& up = own(p.up);
  const CudaWeight& down = own(p.down);
  const int assignments = p.x.rows * p.ids.cols;
  const int width = expert_width(p.x.rows);
  const auto ints = expert_list_ints(assignments, gate.experts(), width);
  const ExpertList list = lay_expert_list(expert_ints_.get_array<int>(ints, context_), p.x.rows, p.ids.cols,
                                          gate.experts(), width);
  run_expert_list(context_, matrix<const int>(p.ids), list);

  const auto view = [&](DeviceScratch& memory, int cols) {
    const auto count = static_cast<std::size_t>(assignments) * static_cast<std::size_t>(cols);
    return make_view(memory.get_array<float>(count, context_), DType::kF32, assignments, cols);
  };
  const TensorView hidden = view(expert_gate_, gate.out());
  writes(hidden);
  if (gate.is_affine() && up.is_affine() && can_pair(gate.affine(), up.affine())) {
    run_affine_experts_gated(context_, gate.affine(), up.affine(), list,
                             code_experts(gate.affine(), list, ExpertRows::kToken, p.x), hidden);
  } else {
    const TensorView up_rows = view(expert_up_, up.out());
    multiply_experts(gate, list, ExpertRows::kToken, p.x, hidden);
    multiply_experts(up, list, ExpertRows::kToken, p.x, up_rows);
    run_swiglu(context_, {hidden, up_rows, hidden}, {});
  }
  const TensorView y = view(expert_out_, p.out.cols);
  multiply_experts(down, list, ExpertRows::kPlace, hidden, y);
  run_combine_experts(context_, p, list, y);
}

void CudaOps::argmax_rows(const ArgmaxRowsParams& p) {
  validate(p);
  if (p.logits.rows == 0) return;
  writes(p.ids);
  const auto parts =
      static_cast<std::size_t>(p.logits.rows) * static_cast<std::size_t>(argmax_parts(p.logits.cols));
  run_argmax_rows(context_, p, argmax_parts_.get_array<ArgmaxPart>(parts, context_));
}

}  // namespace mererun::cuda

namespace mererun {

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options, CudaGraphs graphs) {
  return std::make_unique<cuda::CudaOps>(options, graphs);
}

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
  return make_cuda_ops(options, CudaGraphs::kOn);
}

CudaPresence find_cuda_devices() {
  CudaPresence present;
  const cuda::DeviceList list = cuda::list_devices();
  for (const cuda::DeviceInfo& info : list.devices)
    present.devices.push_back({info.name, info.major, info.minor});
  present.absence = list.absence;
  return present;
}

int cuda_device_count() { return static_cast<int>(cuda::list_devices().devices.size()); }

std::optional<DeviceDescription> describe_gpu(const Ops& ops) {
  const auto* mine = dynamic_cast<const cuda::CudaOps*>(&ops);
  if (mine == nullptr) return std::nullopt;
  const cuda::DeviceInfo& device = mine->device();
  return DeviceDescription{
      .name = device.name,
      .driver = fmt::format("CUDA driver {}.{}", device.driver / 1000, device.driver % 1000 / 10),
      .memory_bytes = device.memory_bytes,
      .free_bytes = device.free_bytes};
}

}  // namespace mererun
