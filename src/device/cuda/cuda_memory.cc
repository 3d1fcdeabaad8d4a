#include "device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/error.h"
#include "device/cuda/cuda_error.h"

namespace mererun::cuda {

Buffer allocate_device(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the device stays usable
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cuda memory");
    fail_expected(ErrorCode::kOutOfMemory, "cuda memory", fmt::format("{} bytes", bytes),
                  fmt::format("{} free of {}", free, total));
  }
  check(status, "cuda allocation");
  // A destructor cannot report; what goes wrong here shows in the next call.
  return Buffer(data, bytes, [](void* p) { cudaFree(p); });
}

Buffer allocate_pinned(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "cuda page-locked host memory");
  return Buffer(data, bytes, [](void* p) { cudaFreeHost(p); });
}

}  // namespace mererun::cuda
