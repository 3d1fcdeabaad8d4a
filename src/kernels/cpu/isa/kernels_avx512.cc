#include <immintrin.h>
#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"

namespace mererun::cpu {
namespace avx512 {
namespace {
#include "kernels/cpu/isa/vec_avx512.h"
}  // namespace
#define MERERUN_TABLE_ISA CpuIsa::kAvx512
#include "kernels/cpu/isa/kernels.h"
}  // namespace avx512

const KernelTable& avx512_kernels() { return avx512::kTable; }

}  // namespace mererun::cpu
