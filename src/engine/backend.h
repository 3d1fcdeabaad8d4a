#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/memory_plan.h"
#include "kernels/cuda_device.h"
#include "kernels/ops.h"
#include "model/host_weights.h"

namespace mererun {

enum class Backend { kAuto, kCpu, kCuda, kReference };
/// Parses "auto", "cpu", "cuda" or "reference". Errors: kInvalidArgument.
Backend parse_backend(std::string_view text);
std::string_view name_of(Backend backend);

/// What a request for a backend comes to.
struct BackendChoice {
  Backend backend = Backend::kCpu;  // never kAuto
  std::string reason;               // why kAuto became this one; empty for one asked for by name
};

/// kAuto is GPU `device` if the machine has it and this build serves it, else the CPU. A GPU asked for by
/// name is that GPU or an error: kUnsupported, saying what is missing.
BackendChoice choose_backend(Backend wanted, int device, const CudaPresence& present);
/// The same for this machine.
BackendChoice choose_backend(Backend wanted, int device);

/// The operations of a backend; kAuto as choose_backend says. `cpu` is what the CPU is asked for, where it is
/// the CPU that computes. Errors: those of choose_backend and make_cpu_ops; kDevice.
std::unique_ptr<Ops> make_backend(Backend backend, int device, const CpuOptions& cpu);

/// memory_needed or gpu_memory_needed, as `backend` (not kAuto) has it.
MemoryNeed memory_needed(const HostWeights& weights, int context, const MemoryLimits& limits,
                         Backend backend);

/// What a model will need, for the check before its weights are loaded.
struct BackendNeed {
  int context = 0;        // positions that requests may use
  int prefill_chunk = 0;  // rows of the widest pass
  int verify_width = 8;
};

/// Positions that a GPU must hold for a model to be loaded there.
inline constexpr int kLeastContext = 4096;

/// make_backend for a model whose weights are still on the host. A GPU must have room for the weights and a
/// sequence of kLeastContext positions (or of `need.context`, if that is less): the budget is logged before
/// anything is loaded, and a model that does not fit is refused (kCuda) or computed on the CPU (kAuto).
/// Errors: those of make_backend; kUnsupported; kOutOfMemory with the parts of the budget.
std::unique_ptr<Ops> make_backend_for(const HostWeights& weights, const BackendNeed& need, Backend wanted,
                                      int device, const CpuOptions& cpu);

/// The parts of a budget in one line, and what lacks if it exceeds `free_bytes`.
std::string budget_text(const MemoryNeed& need);
std::optional<std::string> misfit_of(const MemoryNeed& need, std::uint64_t free_bytes);

}  // namespace mererun
