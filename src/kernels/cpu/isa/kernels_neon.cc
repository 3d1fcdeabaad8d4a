#include <arm_neon.h>
#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"

namespace mererun::cpu {
namespace neon {
namespace {
#include "kernels/cpu/isa/vec_neon.h"
}  // namespace
#define MERERUN_TABLE_ISA CpuIsa::kNeon
#include "kernels/cpu/isa/kernels.h"
}  // namespace neon

const KernelTable& neon_kernels() { return neon::kTable; }

}  // namespace mererun::cpu
