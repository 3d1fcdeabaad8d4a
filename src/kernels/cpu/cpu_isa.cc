#include "kernels/cpu/cpu_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace mererun {
namespace {

struct NamedIsa {
  CpuIsa isa;
  std::string_view name;
};
constexpr NamedIsa kNames[] = {
    {CpuIsa::kAuto, "auto"},     {CpuIsa::kPortable, "portable"},      {CpuIsa::kAvx2, "avx2"},
    {CpuIsa::kAvx512, "avx512"}, {CpuIsa::kAvx512Vnni, "avx512-vnni"}, {CpuIsa::kNeon, "neon"}};

/// The names of the sets that pass `accepts`, "a, b, c".
template <typename F>
std::string names(F&& accepts) {
  std::string list;
  for (const NamedIsa& entry : kNames) {
    if (accepts(entry.isa)) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list;
}

}  // namespace

std::string_view name_of(CpuIsa isa) { return std::ranges::find(kNames, isa, &NamedIsa::isa)->name; }

std::vector<std::string> cpu_isa_names() {
  std::vector<std::string> all;
  for (const NamedIsa& entry : kNames) all.emplace_back(entry.name);
  return all;
}

CpuIsa parse_cpu_isa(std::string_view text) {
  const auto* found = std::ranges::find(kNames, text, &NamedIsa::name);
  if (found != std::end(kNames)) return found->isa;
  fail_expected(ErrorCode::kInvalidArgument, "cpu instruction set",
                "one of " + names([](CpuIsa) { return true; }), fmt::format("'{}'", text));
}

}  // namespace mererun

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
  fail_expected(ErrorCode::kUnsupported, "cpu instruction set",
                "one that this machine runs (" + names(is_supported) + ")", std::string(name_of(isa)));
}

bool is_supported(CpuIsa isa) { return isa == CpuIsa::kAuto || find(isa) != nullptr; }

}  // namespace mererun::cpu
