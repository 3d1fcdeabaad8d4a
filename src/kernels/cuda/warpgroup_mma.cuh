#pragma once

#include <cstdint>

// Matrix instructions of a warpgroup (four warps), compute capability 9.0a only: 64 weight rows from
// registers by 16 or 32 activation rows from shared memory. They run in the background: results are there
// after warpgroup_wait. Source: PTX ISA, "Asynchronous warpgroup level matrix instructions".

namespace mererun::cuda {

/// Before the first instruction of a group: registers written until now are visible to it.
__device__ __forceinline__ void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of instructions.
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending groups are unfinished; `results` are those of the group waited for.
template <int kPending, int kCount>
__device__ __forceinline__ void warpgroup_wait(int (&results)[kCount]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(results[i])::"memory");
}

/// Rows of 32 bytes in shared memory: cores of 8 rows by 16 bytes, each 128 bytes in one piece, the
/// cores of the next 8 rows behind it, the cores of the second 16 bytes `next_half` bytes on.
__device__ __forceinline__ std::uint64_t describe_rows(const void* shared, int next_half) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  return static_cast<std::uint64_t>(at >> 4 & 0x3fffu) | static_cast<std::uint64_t>(next_half >> 4) << 16 |
         static_cast<std::uint64_t>(128 >> 4) << 32;
}

/// d = A * B (kAdd: + d), exact in int32: m64nNk32, N = 2 * kCount columns. A: the four words of m16n8k32's
/// first operand in each warp, bytes signed, or unsigned where kUnsigned; B: signed bytes of described rows.
/// Result 4 * n + e of a lane is that of m16n8k32 for columns 8 * n to 8 * n + 7.
template <bool kUnsigned, bool kAdd, int kCount>
__device__ __forceinline__ void multiply_async(int (&d)[kCount], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  static_assert(kCount == 8 || kCount == 16);
#define MERERUN_WGMMA_16(type)                                                                         \
  asm volatile(                                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"                                                     \
      "wgmma.mma_async.sync.aligned.m64n16k32.s32." type                                               \
      ".s8 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p;\n}"                                     \
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0))
#define MERERUN_WGMMA_32(type)                                                                               \
  asm volatile(                                                                                              \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                                                           \
      "wgmma.mma_async.sync.aligned.m64n32k32.s32." type                                                     \
      ".s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p;\n}"           \
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),      \
        "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd ? 1 : 0))
  if constexpr (kCount == 8 && kUnsigned) {
    MERERUN_WGMMA_16("u8");
  } else if constexpr (kCount == 8) {
    MERERUN_WGMMA_16("s8");
  } else if constexpr (kUnsigned) {
    MERERUN_WGMMA_32("u8");
  } else {
    MERERUN_WGMMA_32("s8");
  }
#undef MERERUN_WGMMA_16
#undef MERERUN_WGMMA_32
}

}  // namespace mererun::cuda
