#include "base/error.h"
#include "kernels/ops.h"

namespace mererun {

// Linked instead of cuda/ where the build has no CUDA compiler.

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions&) {
  fail_expected(ErrorCode::kUnsupported, "backend cuda", "a build with the CUDA backend", "one without it");
}

int cuda_device_count() { return 0; }

}  // namespace mererun
