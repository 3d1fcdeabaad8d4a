#include "device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/error.h"
#include "device/cuda/cuda_error.h"

namespace mererun::cuda {

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // a machine without a driver is no error here
    return 0;
  }
  return count;
}

DeviceInfo device_info(int device) {
  const int count = device_count();
  if (device < 0 || device >= count) {
    fail_expected(ErrorCode::kUnsupported, "cuda device", fmt::format("one of {} devices", count),
                  fmt::format("device {}", device));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cuda device properties");
  DeviceInfo info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  info.shared_bytes_per_processor = static_cast<int>(properties.sharedMemPerMultiprocessor);
  info.memory_bytes = properties.totalGlobalMem;
  if (info.major < 8) {
    fail_expected(ErrorCode::kUnsupported, "cuda device", "compute capability 8.0 or later",
                  fmt::format("{}.{}", info.major, info.minor));
  }
  check(cudaSetDevice(device), "cuda set device");
  std::size_t total = 0;
  check(cudaMemGetInfo(&info.free_bytes, &total), "cuda memory");
  check(cudaDriverGetVersion(&info.driver), "cuda driver version");
  check(cudaRuntimeGetVersion(&info.runtime), "cuda runtime version");
  return info;
}

}  // namespace mererun::cuda
