#pragma once

#include "kernels/cuda/launch.h"
#include "tensor/linear_source.h"

namespace mererun::cuda {

/// Widened or dequantised rows of a matrix as the checkpoint stores it: out[t] = row ids[t], fma(s, q, b).
/// `stored` has device pointers and no experts. An id outside the matrix gives a row of NaN.
void run_embed_rows(const LaunchContext& context, const LinearSource& stored, const int* ids,
                    const TensorView& out);

}  // namespace mererun::cuda
