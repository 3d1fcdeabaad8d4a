#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace mererun::cuda {

/// One GPU as the driver describes it.
struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // largest dynamic shared memory of a block (opt-in)
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;   // when asked
  int driver = 0, runtime = 0;  // 13000: 13.0
};

/// GPUs this process can use, by index, with what needs no context; or why there is none.
struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string absence;
};
/// Never throws.
DeviceList list_devices();

/// Makes a GPU current and describes it. Errors: kUnsupported without that GPU or below compute capability
/// 8.0; kDevice.
DeviceInfo device_info(int device);

}  // namespace mererun::cuda
