#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_memory.h"
#include "tests/cuda/read_ceiling.h"

namespace mererun::cuda_check {

inline namespace read_ceiling_cu {

__global__ void read_kernel(const uint4* __restrict__ from, std::size_t count, std::uint32_t* out) {
  std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::uint32_t seen = 0;
  for (; i + 7 * stride < count; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j) seen ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (seen == 0x12345678u) *out = seen;
}

constexpr int kChains = 8, kRepeats = 512, kWarps = 8;

/// Independent chains of one matrix instruction; two warps on each quarter of the multiprocessor.
template <bool kInt8>
__global__ void matrix_kernel(long long* clocks, std::uint32_t seed, std::uint32_t* out) {
  std::uint32_t d[kChains][4] = {};
  const std::uint32_t a = seed + threadIdx.x, b = seed ^ threadIdx.x;
  __syncthreads();
  const long long start = clock64();
  for (int i = 0; i < kRepeats; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) {
      if constexpr (kInt8) {
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, "
            "{%0,%1,%2,%3};"
            : "+r"(d[c][0]), "+r"(d[c][1]), "+r"(d[c][2]), "+r"(d[c][3])
            : "r"(a), "r"(b));
      } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, "
            "{%0,%1,%2,%3};"
            : "+r"(d[c][0]), "+r"(d[c][1]), "+r"(d[c][2]), "+r"(d[c][3])
            : "r"(a), "r"(b));
      }
    }
  }
  __syncthreads();
  const long long end = clock64();
  std::uint32_t sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum ^= d[c][0] ^ d[c][1] ^ d[c][2] ^ d[c][3];
  out[threadIdx.x] = sum;
  if (threadIdx.x == 0) *clocks = end - start;
}

template <bool kInt8>
double clocks_of() {
  const Buffer clocks = cuda::allocate_device(8), out = cuda::allocate_device(4 * 32 * kWarps);
  long long taken = 0;
  for (int i = 0; i < 2; ++i) {
    matrix_kernel<kInt8><<<1, 32 * kWarps>>>(clocks.as<long long>(), 0, out.as<std::uint32_t>());
    cuda::check(cudaMemcpy(&taken, clocks.data(), 8, cudaMemcpyDeviceToHost), "matrix kernel");
  }
  return static_cast<double>(taken) / (kRepeats * kChains * (kWarps / 4));
}

}  // namespace read_ceiling_cu

MatrixClocks matrix_clocks() { return {clocks_of<true>(), clocks_of<false>()}; }

double read_ceiling_tb_per_s() {
  constexpr std::size_t kBytes = std::size_t{4} << 30;
  const Buffer memory = cuda::allocate_device(kBytes);
  const Buffer out = cuda::allocate_device(4);
  cuda::check(cudaMemset(memory.data(), 0x5a, kBytes), "fill");
  cudaEvent_t start, end;
  cuda::check(cudaEventCreate(&start), "event");
  cuda::check(cudaEventCreate(&end), "event");
  const int processors = cuda::device_info(0).multiprocessors;
  double best = 0;
  for (const int blocks : {4, 8, 16}) {
    for (const int threads : {256, 512}) {
      for (int i = 0; i < 5; ++i) {
        cuda::check(cudaEventRecord(start), "event");
        read_kernel<<<blocks * processors, threads>>>(memory.as<uint4>(), kBytes / 16,
                                                      out.as<std::uint32_t>());
        cuda::check(cudaEventRecord(end), "event");
        cuda::check(cudaEventSynchronize(end), "read kernel");
        float ms = 0;
        cuda::check(cudaEventElapsedTime(&ms, start, end), "event");
        if (i > 0 && static_cast<double>(kBytes) / ms / 1e9 > best)
          best = static_cast<double>(kBytes) / ms / 1e9;
      }
    }
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  return best;
}

}  // namespace mererun::cuda_check
