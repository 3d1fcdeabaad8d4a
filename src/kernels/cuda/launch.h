#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "device/cuda/cuda_error.h"
#include "kernels/cuda/launch_queue.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

/// Where and how kernels are queued.
struct LaunchContext {
  cudaStream_t stream = nullptr;
  LaunchQueue* queue = nullptr;  // null: kernels are launched at once
  int device = 0;
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;
  /// Kernels may start before their predecessor has finished (compute capability 9.0); each waits for it
  /// before it touches memory that a kernel writes (wait_for_predecessor in device.cuh).
  bool early_start = false;
  /// The bulk copy engine is there (compute capability 9.0 and later), and clusters of blocks.
  bool has_bulk_copy = false, has_clusters = false;
  /// The matrix instructions of a warpgroup are there (compute capability 9.0, no other).
  bool has_warpgroup_mma = false;

  /// Before anything but a kernel is put on the stream, and before memory that kernels use is freed.
  void flush() const {
    if (queue != nullptr) queue->flush();
  }

  /// Shared memory for a launch of so many blocks, at least `bytes`: enough to spread them evenly.
  std::size_t spread(std::int64_t blocks, std::size_t bytes) const {
    return spread_bytes(blocks, multiprocessors, shared_bytes_per_block, bytes);
  }
};

/// Queues a kernel and checks the launch. Errors: kDevice naming `where` (a literal).
template <typename... Params, typename... Args>
void launch(const LaunchContext& context, const char* where, void (*kernel)(Params...),
            const LaunchShape& shape, Args... args) {
  std::tuple<Params...> values(static_cast<Params>(args)...);
  std::apply(
      [&](Params&... value) {
        // Equal calls are recognised by their bytes.
        ((std::is_class_v<Params> ? __builtin_clear_padding(&value) : void()), ...);
        void* arguments[] = {&value...};
        const KernelCall call{reinterpret_cast<const void*>(kernel), where, shape, context.early_start,
                              arguments};
        if (context.queue == nullptr) {
          launch_now(context.stream, call);
        } else {
          constexpr std::size_t kSizes[] = {sizeof(Params)...};
          context.queue->add(call, kSizes, static_cast<int>(sizeof...(Params)));
        }
      },
      values);
}

/// Allows a kernel `bytes` of dynamic shared memory; call before its launch.
template <typename... Params>
void allow_shared(void (*kernel)(Params...), std::size_t bytes) {
  if (bytes <= 40 * 1024) return;  // every kernel has 48 KiB, static arrays included
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cuda shared memory of a kernel");
}

/// Allows a kernel without static shared arrays all shared memory of a block, once per device.
template <auto kKernel>
void allow_all_shared(const LaunchContext& context) {
  static std::atomic<std::uint64_t> allowed{0};
  const std::uint64_t device = std::uint64_t{1} << (context.device % 64);
  if ((allowed.load(std::memory_order_relaxed) & device) != 0) return;
  allow_shared(kKernel, static_cast<std::size_t>(context.shared_bytes_per_block));
  allowed.fetch_or(device, std::memory_order_relaxed);
}

/// A row-major matrix as kernels see it.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t stride = 0;  // elements between rows

#if defined(__CUDACC__)
  __device__ T* row(std::int64_t r) const { return data + r * stride; }
#endif
};

template <typename T>
Matrix<T> matrix(const TensorView& view) {
  return {static_cast<T*>(view.data), view.row_stride};
}

constexpr unsigned blocks_for(std::int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace mererun::cuda
