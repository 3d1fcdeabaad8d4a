#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mererun::cpu {
namespace portable {
namespace {
#include "kernels/cpu/isa/vec_portable.h"
}  // namespace
#define MERERUN_TABLE_ISA CpuIsa::kPortable
#include "kernels/cpu/isa/kernels.h"
}  // namespace portable

const KernelTable& portable_kernels() { return portable::kTable; }

}  // namespace mererun::cpu
