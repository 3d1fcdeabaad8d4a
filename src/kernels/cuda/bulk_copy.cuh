#pragma once

#include <cstdint>

// Copies of the bulk copy engine and the barriers in shared memory that count their bytes, compute
// capability 9.0. Source: PTX ISA, "Asynchronous copy" and "mbarrier".

namespace mererun::cuda {

/// A barrier of `arrivals` threads and of the bytes that they announce; phases alternate between parity 0
/// and 1.
class BulkBarrier {
 public:
  /// By one thread; then publish_barriers and a barrier of the block.
  __device__ __forceinline__ void start(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// Arrives; the phase also needs `bytes` of copies.
  __device__ __forceinline__ void arrive_for(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
  }
  /// Waits until the phase of this parity is complete.
  __device__ __forceinline__ void wait(int parity) const {
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra WAIT;\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
  }
  /// Starts a copy of `bytes` (a multiple of 16, as both addresses) that counts for this barrier.
  __device__ __forceinline__ void copy(void* shared, const void* global, int bytes) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(global), "r"(bytes), "r"(address())
        : "memory");
  }

 private:
  __device__ __forceinline__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&state_));
  }
  std::uint64_t state_;
};

/// Asks the second-level cache for `bytes` (a multiple of 16, as the address); nothing on older GPUs.
__device__ __forceinline__ void prefetch_bulk(const void* global, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#endif
}

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace mererun::cuda
