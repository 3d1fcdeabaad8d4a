#pragma once

#include <cstddef>

#include "device/buffer.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

/// Device memory that grows to the largest request and is reused by later ones, in stream order. Zeroed when
/// it grows, not afterwards.
///
/// Growing waits for the device: sizes settle after the first passes of each width.
class DeviceScratch {
 public:
  /// At least `bytes`; valid until the next larger request. Errors: kOutOfMemory.
  void* get(std::size_t bytes, const LaunchContext& context);
  template <typename T>
  T* get_array(std::size_t count, const LaunchContext& context) {
    return static_cast<T*>(get(count * sizeof(T), context));
  }

 private:
  Buffer memory_;
};

}  // namespace mererun::cuda
