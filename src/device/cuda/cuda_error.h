#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

namespace mererun::cuda {

/// Throws unless `status` is success: kOutOfMemory for an allocation that did not fit, else kDevice.
/// `where` names the call. A device error is sticky: the context cannot be used afterwards.
void check(cudaError_t status, std::string_view where);

}  // namespace mererun::cuda
