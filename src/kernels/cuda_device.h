#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace mererun {

/// GPUs by index, as the driver lists them, or why there is none to be used.
struct CudaPresence {
  struct Device {
    std::string name;
    int major = 0, minor = 0;  // compute capability
  };
  std::vector<Device> devices;
  std::string absence;  // where `devices` is empty: "no CUDA driver on this machine"
};
/// Asks the driver; no context is made. Never throws.
CudaPresence find_cuda_devices();

/// A GPU that a backend computes on.
struct DeviceDescription {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // "CUDA driver 13.0"
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;  // when the backend was made
};
/// Where a backend computes; no value: on the host's processor, in the host's memory.
std::optional<DeviceDescription> describe_gpu(const Ops& ops);

/// make_cuda_ops with graphs chosen: on (as make_cuda_ops has it), sequences of kernels that come again are
/// replayed as CUDA graphs; off, kernels are launched one by one. The bits are the same.
enum class CudaGraphs { kOn, kOff };
std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options, CudaGraphs graphs);

}  // namespace mererun
