#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/buffer.h"

namespace mererun::cuda {

/// Device memory that grows to the largest request and is reused by later ones, in stream order. Zeroed when
/// it grows, not afterwards.
///
/// Growing waits for the device: sizes settle after the first passes of each width.
class DeviceScratch {
 public:
  /// At least `bytes`; valid until the next larger request. Errors: kOutOfMemory.
  void* get(std::size_t bytes, cudaStream_t stream);
  template <typename T>
  T* get_array(std::size_t count, cudaStream_t stream) {
    return static_cast<T*>(get(count * sizeof(T), stream));
  }

 private:
  Buffer memory_;
};

}  // namespace mererun::cuda
