#include <immintrin.h>
#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"

namespace mererun::cpu {
namespace avx2 {
namespace {
#include "kernels/cpu/isa/vec_avx2.h"
}  // namespace
#define MERERUN_TABLE_ISA CpuIsa::kAvx2
#include "kernels/cpu/isa/kernels.h"
}  // namespace avx2

const KernelTable& avx2_kernels() { return avx2::kTable; }

}  // namespace mererun::cpu
