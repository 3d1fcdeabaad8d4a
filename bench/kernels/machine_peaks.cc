#include "bench/kernels/machine_peaks.h"

#include <algorithm>

#include "kernels/cpu/packed_weight.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mererun::bench {
namespace {

#if defined(__x86_64__)
// Twelve independent sums cover the latency of the adds; inline assembly keeps the compiler from folding the
// loop.
constexpr int kSums = 12;

__attribute__((target("avx2"))) std::int64_t run_avx2(std::int64_t rounds) {
  __m256i sum[kSums] = {}, w = _mm256_set1_epi16(3), x = _mm256_set1_epi16(5);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (__m256i& s : sum) {
      __m256i product;
      asm volatile("vpmaddwd %2, %3, %0\n\tvpaddd %0, %1, %1" : "=&x"(product), "+x"(s) : "x"(w), "x"(x));
    }
  }
  return rounds * kSums * 16;
}

__attribute__((target("avx512f,avx512bw"))) std::int64_t run_avx512(std::int64_t rounds) {
  __m512i sum[kSums] = {}, w = _mm512_set1_epi16(3), x = _mm512_set1_epi16(5);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (__m512i& s : sum) {
      __m512i product;
      asm volatile("vpmaddwd %2, %3, %0\n\tvpaddd %0, %1, %1" : "=&v"(product), "+v"(s) : "v"(w), "v"(x));
    }
  }
  return rounds * kSums * 32;
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) std::int64_t run_vnni(std::int64_t rounds) {
  __m512i sum[kSums] = {}, w = _mm512_set1_epi16(3), x = _mm512_set1_epi16(5);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (__m512i& s : sum) asm volatile("vpdpwssd %1, %2, %0" : "+v"(s) : "v"(w), "v"(x));
  }
  return rounds * kSums * 32;
}
#endif

std::int64_t run_scalar(std::int64_t rounds) {
  std::int32_t sum[8] = {};
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (std::int32_t& s : sum) {
      s += 15 * static_cast<std::int32_t>(r & 7);
      asm volatile("" : "+r"(s));
    }
  }
  return rounds * 8;
}

}  // namespace

ReadProbe::ReadProbe(std::size_t bytes)
    : words_(bytes / sizeof(std::uint64_t)), memory_(cpu::allocate_pages(bytes)) {
  std::fill_n(memory_.as<std::uint64_t>(), words_, 1);
}

void ReadProbe::read(int worker, int workers) {
  const auto edge = [&](int part) {
    return words_ * static_cast<std::size_t>(part) / static_cast<std::size_t>(workers) / 64 * 64;
  };
  const std::size_t begin = edge(worker), end = edge(worker + 1);
  const auto* words = memory_.as<const std::uint64_t>();
  constexpr std::size_t kAhead = 512;  // words: 4 KiB
  std::uint64_t sums[32] = {};
  for (std::size_t i = begin; i < end; i += 32) {
    // The fair ceiling: like the kernels, it does not leave all of the fetching to the hardware.
    for (std::size_t j = 0; j < 32; j += 8) __builtin_prefetch(words + i + j + kAhead);
    for (std::size_t j = 0; j < 32; ++j) sums[j] ^= words[i + j];
  }
  for (const std::uint64_t s : sums) sink_ = sink_ ^ s;
}

MultiplyProbe multiply_probe(CpuIsa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case CpuIsa::kAvx2: return {"vpmaddwd + vpaddd, 256 bit", run_avx2};
    case CpuIsa::kAvx512: return {"vpmaddwd + vpaddd, 512 bit", run_avx512};
    case CpuIsa::kAvx512Vnni: return {"vpdpwssd, 512 bit", run_vnni};
#endif
    default: return {"scalar multiply-add", run_scalar};
  }
}

}  // namespace mererun::bench
