#include "kernels/cuda/device_scratch.h"

#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"

namespace mererun::cuda {

void* DeviceScratch::get(std::size_t bytes, const LaunchContext& context) {
  if (bytes > memory_.size_bytes()) {
    context.flush();
    check(cudaStreamSynchronize(context.stream), "cuda synchronize");
    const std::size_t wanted = std::max<std::size_t>(
        bytes, 2 * memory_.size_bytes() <= (std::size_t{256} << 20) ? 2 * memory_.size_bytes() : bytes);
    memory_ = Buffer();  // before the new one: the two need not fit together
    memory_ = allocate_device(wanted);
    check(cudaMemsetAsync(memory_.data(), 0, memory_.size_bytes(), context.stream), "cuda zero");
  }
  return memory_.data();
}

}  // namespace mererun::cuda
