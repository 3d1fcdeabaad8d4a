#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace mererun {

/// "auto", "portable", "avx2", "avx512", "avx512-vnni" or "neon".
std::string_view name_of(CpuIsa isa);
/// All of these.
std::vector<std::string> cpu_isa_names();
/// The set of that name. Errors: kInvalidArgument.
CpuIsa parse_cpu_isa(std::string_view text);
/// What a backend's kernels are made of (never kAuto); no value for other backends than the cpu one.
std::optional<CpuIsa> cpu_isa_of(const Ops& ops);

}  // namespace mererun

namespace mererun::cpu {

/// The kernels of `isa`, or of the widest instruction set of this machine for kAuto.
/// Errors: kUnsupported if this build or this machine lacks it.
const KernelTable& select_kernels(CpuIsa isa);

/// True if this build has kernels for `isa` and this machine runs them.
bool is_supported(CpuIsa isa);

}  // namespace mererun::cpu
