#include <immintrin.h>
#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"

namespace mererun::cpu {
namespace avx512_vnni {
namespace {
#include "kernels/cpu/isa/vec_avx512.h"
}  // namespace
#define MERERUN_TABLE_ISA CpuIsa::kAvx512Vnni
#include "kernels/cpu/isa/kernels.h"
}  // namespace avx512_vnni

const KernelTable& avx512_vnni_kernels() { return avx512_vnni::kTable; }

}  // namespace mererun::cpu
