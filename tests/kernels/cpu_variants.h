#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_isa.h"
#include "kernels/ops.h"

namespace mererun {

/// One way to run the CPU backend.
struct CpuVariant {
  std::string name;
  CpuIsa isa;
  int threads;

  std::unique_ptr<Ops> make() const {
    CpuOptions options;
    options.threads = threads;
    options.isa = isa;
    return make_cpu_ops(options);
  }
};

inline void PrintTo(const CpuVariant& variant, std::ostream* os) { *os << variant.name; }

/// Every instruction set that this machine runs, with 1, 2 and 3 threads between them.
inline std::vector<CpuVariant> cpu_variants() {
  std::vector<CpuVariant> all;
  const auto add = [&](const char* name, CpuIsa isa, int threads) {
    if (cpu::is_supported(isa))
      all.push_back({std::string(name) + "_" + std::to_string(threads), isa, threads});
  };
  add("portable", CpuIsa::kPortable, 2);
  add("avx2", CpuIsa::kAvx2, 1);
  add("avx2", CpuIsa::kAvx2, 3);
  add("avx512", CpuIsa::kAvx512, 2);
  add("avx512_vnni", CpuIsa::kAvx512Vnni, 1);
  add("avx512_vnni", CpuIsa::kAvx512Vnni, 3);
  add("neon", CpuIsa::kNeon, 2);
  return all;
}

/// The variants whose kernels differ: one per instruction set.
inline std::vector<CpuVariant> cpu_isas() {
  std::vector<CpuVariant> all;
  for (const CpuVariant& v : cpu_variants()) {
    if (all.empty() || all.back().isa != v.isa) all.push_back(v);
  }
  return all;
}

}  // namespace mererun
