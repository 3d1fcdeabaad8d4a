#include "device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "device/cuda/cuda_error.h"

namespace mererun::cuda {

namespace {

/// What the driver knows without a context.
cudaError_t read_properties(int device, DeviceInfo& info) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status != cudaSuccess) return status;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  info.memory_bytes = properties.totalGlobalMem;
  return cudaSuccess;
}

/// The driver's words for why there is no GPU, in ours.
std::string absence_of(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
    case cudaErrorNoDevice: return "no CUDA GPU on this machine";
    case cudaErrorInsufficientDriver: {
      int version = 0;
      if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
        return "no CUDA driver on this machine";
      return fmt::format("a CUDA driver {}.{}, older than this build needs", version / 1000,
                         version % 1000 / 10);
    }
    default: return fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status));
  }
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  for (int i = 0; i < count && status == cudaSuccess; ++i) {
    DeviceInfo info;
    status = read_properties(i, info);
    if (status == cudaSuccess) list.devices.push_back(std::move(info));
  }
  if (list.devices.empty()) list.absence = absence_of(status);
  cudaGetLastError();  // a machine without a driver is no error here
  return list;
}

DeviceInfo device_info(int device) {
  const DeviceList list = list_devices();
  if (list.devices.empty()) {
    fail_expected(ErrorCode::kUnsupported, "backend cuda", "a CUDA GPU", list.absence);
  }
  const auto count = static_cast<int>(list.devices.size());
  if (device < 0 || device >= count) {
    fail_expected(ErrorCode::kUnsupported, "cuda device", fmt::format("0..{}", count - 1),
                  fmt::format("{}", device));
  }
  DeviceInfo info = list.devices[static_cast<std::size_t>(device)];
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
