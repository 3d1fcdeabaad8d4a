#include "engine/backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "engine/memory_plan.h"
#include "kernels/cpu/cpu_isa.h"

namespace mererun {
namespace {

constexpr int kLeastMajor = 8;  // compute capability that the kernels need
constexpr const char* kCpuHint = "--backend cpu computes the same bits on the processor";

[[noreturn]] void fail_no_gpu(std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::kUnsupported, fmt::format("backend cuda: expected {}, got {}", expected, got),
              kCpuHint);
}

/// Why GPU `device` cannot compute; empty if it can.
struct Obstacle {
  std::string expected, got;
};
Obstacle obstacle_of(int device, const CudaPresence& present) {
  if (present.devices.empty()) return {"a CUDA GPU", present.absence};
  const auto count = static_cast<int>(present.devices.size());
  if (device < 0 || device >= count)
    return {count == 1 ? "device 0, the only GPU" : fmt::format("device 0..{}", count - 1),
            fmt::format("device {}", device)};
  const CudaPresence::Device& gpu = present.devices[static_cast<std::size_t>(device)];
  if (gpu.major < kLeastMajor)
    return {fmt::format("compute capability {}.0 or later", kLeastMajor),
            fmt::format("{}.{} ({})", gpu.major, gpu.minor, gpu.name)};
  return {};
}

std::unique_ptr<Ops> make_chosen(Backend backend, int device, const CpuOptions& cpu) {
  if (backend == Backend::kReference) return make_reference_ops();
  if (backend == Backend::kCuda) {
    CudaOptions cuda;
    cuda.device = device;
    return make_cuda_ops(cuda);
  }
  auto ops = make_cpu_ops(cpu);
  log(LogLevel::kInfo, "backend", "instruction_set={}", name_of(*cpu_isa_of(*ops)));
  return ops;
}

}  // namespace

Backend parse_backend(std::string_view text) {
  if (text == "auto") return Backend::kAuto;
  if (text == "cpu") return Backend::kCpu;
  if (text == "cuda") return Backend::kCuda;
  if (text == "reference") return Backend::kReference;
  fail_expected(ErrorCode::kInvalidArgument, "backend", "auto, cpu or cuda", fmt::format("'{}'", text));
}

std::string_view name_of(Backend backend) {
  switch (backend) {
    case Backend::kAuto: return "auto";
    case Backend::kCpu: return "cpu";
    case Backend::kCuda: return "cuda";
    case Backend::kReference: break;
  }
  return "reference";
}

BackendChoice choose_backend(Backend wanted, int device, const CudaPresence& present) {
  if (wanted == Backend::kCpu || wanted == Backend::kReference) return {.backend = wanted, .reason = {}};
  const Obstacle obstacle = obstacle_of(device, present);
  if (obstacle.got.empty()) {
    if (wanted == Backend::kCuda) return {.backend = Backend::kCuda, .reason = {}};
    return {.backend = Backend::kCuda, .reason = present.devices[static_cast<std::size_t>(device)].name};
  }
  if (wanted == Backend::kCuda) fail_no_gpu(obstacle.expected, obstacle.got);
  if (present.devices.empty()) return {.backend = Backend::kCpu, .reason = obstacle.got};
  return {.backend = Backend::kCpu,
          .reason = fmt::format("expected {}, got {}", obstacle.expected, obstacle.got)};
}

BackendChoice choose_backend(Backend wanted, int device) {
  const bool asks = wanted == Backend::kAuto || wanted == Backend::kCuda;
  return choose_backend(wanted, device, asks ? find_cuda_devices() : CudaPresence{});
}

std::unique_ptr<Ops> make_backend(Backend backend, int device, const CpuOptions& cpu) {
  const BackendChoice choice = choose_backend(backend, device);
  if (backend == Backend::kAuto)
    log(LogLevel::kInfo, "backend", "chosen={} reason=\"{}\"", name_of(choice.backend), choice.reason);
  return make_chosen(choice.backend, device, cpu);
}

MemoryNeed memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits,
                         Backend backend) {
  return backend == Backend::kCuda ? gpu_memory_needed(weights, context, limits)
                                   : memory_needed(weights, context, limits);
}

std::string budget_text(const MemoryNeed& need) {
  return fmt::format("weights {} + arena {} + state {} + KV of {} positions {} + scratch {} = {} bytes",
                     need.weights, need.arena, need.state, need.context, need.kv, need.scratch, need.total());
}

std::optional<std::string> misfit_of(const MemoryNeed& need, std::uint64_t free_bytes) {
  if (need.total() <= free_bytes) return std::nullopt;
  return fmt::format("{} free", free_bytes);
}

std::unique_ptr<Ops> make_backend_for(const HostWeights& weights, const BackendNeed& need, Backend wanted,
                                      int device, const CpuOptions& cpu) {
  auto ops = make_backend(wanted, device, cpu);
  const auto gpu = describe_gpu(*ops);
  if (!gpu) return ops;  // the host swaps and maps: the system decides
  const MemoryLimits limits{.prefill_chunk = need.prefill_chunk, .verify_width = need.verify_width};
  const MemoryNeed whole = gpu_memory_needed(weights, need.context, limits);
  const MemoryNeed least = gpu_memory_needed(weights, std::min(need.context, kLeastContext), limits);
  log(LogLevel::kInfo, "memory", "device=\"{}\" free={} budget=\"{}\"", gpu->name, gpu->free_bytes,
      budget_text(whole));
  if (const auto misfit = misfit_of(least, gpu->free_bytes)) {
    if (wanted == Backend::kCuda) {
      throw Error(ErrorCode::kOutOfMemory,
                  fmt::format("memory of {}: expected {}, got {}", gpu->name, budget_text(least), *misfit),
                  kCpuHint);
    }
    log(LogLevel::kWarn, "backend", "chosen=cpu reason=\"{} has {} bytes free, the model needs {}\"",
        gpu->name, gpu->free_bytes, least.total());
    ops.reset();
    return make_chosen(Backend::kCpu, device, cpu);
  }
  if (misfit_of(whole, gpu->free_bytes)) {
    log(LogLevel::kWarn, "memory",
        "device=\"{}\" free={} budget=\"{}\" warning=\"long contexts will not fit\"", gpu->name,
        gpu->free_bytes, budget_text(whole));
  }
  return ops;
}

}  // namespace mererun
