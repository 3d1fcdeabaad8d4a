#include "base/error.h"
#include "kernels/cuda_device.h"
#include "kernels/ops.h"

namespace mererun {

// Linked instead of cuda/ where the build has no CUDA compiler.

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions&) {
  fail_expected(ErrorCode::kUnsupported, "backend cuda", "a build with the CUDA backend", "one without it");
}

CudaPresence find_cuda_devices() { return {.devices = {}, .absence = "a build without CUDA"}; }

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options, CudaGraphs) { return make_cuda_ops(options); }

std::optional<DeviceDescription> describe_gpu(const Ops&) { return std::nullopt; }

int cuda_device_count() { return 0; }

}  // namespace mererun
