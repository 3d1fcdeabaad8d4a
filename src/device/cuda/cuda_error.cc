#include "device/cuda/cuda_error.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mererun::cuda {

void check(cudaError_t status, std::string_view where) {
  if (status == cudaSuccess) return;
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  fail_expected(code, where, "success",
                fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status)));
}

}  // namespace mererun::cuda
