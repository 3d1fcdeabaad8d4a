#include "kernels/cpu/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/error.h"

namespace mererun::cpu {
namespace {

#if defined(__x86_64__)
/// By number: clang 14 does not know the name "f16c".
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
         has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#endif

const KernelTable* find(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kPortable: return &portable_kernels();
#if defined(__x86_64__)
    case CpuIsa::kAvx2: return has_avx2() ? &avx2_kernels() : nullptr;
    case CpuIsa::kAvx512: return has_avx512() ? &avx512_kernels() : nullptr;
    case CpuIsa::kAvx512Vnni: return has_avx512_vnni() ? &avx512_vnni_kernels() : nullptr;
#endif
#if defined(__aarch64__)
    case CpuIsa::kNeon: return &neon_kernels();
#endif
    default: return nullptr;
  }
}

}  // namespace

const KernelTable& select_kernels(CpuIsa isa) {
  if (isa == CpuIsa::kAuto) {
    for (const CpuIsa wide : {CpuIsa::kAvx512Vnni, CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kNeon}) {
      if (const KernelTable* table = find(wide)) return *table;
    }
    return portable_kernels();
  }
  if (const KernelTable* table = find(isa)) return *table;
  fail_expected(ErrorCode::kUnsupported, "cpu instruction set", "one that this machine runs", "another");
}

bool is_supported(CpuIsa isa) { return isa == CpuIsa::kAuto || find(isa) != nullptr; }

}  // namespace mererun::cpu
