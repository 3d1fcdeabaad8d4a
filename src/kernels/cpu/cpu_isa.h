#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/ops.h"

namespace mererun::cpu {

/// The kernels of `isa`, or of the widest instruction set of this machine for kAuto.
/// Errors: kUnsupported if this build or this machine lacks it.
const KernelTable& select_kernels(CpuIsa isa);

/// True if this build has kernels for `isa` and this machine runs them.
bool is_supported(CpuIsa isa);

}  // namespace mererun::cpu
