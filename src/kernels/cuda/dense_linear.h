#pragma once

#include "kernels/cuda/expert_list.h"
#include "kernels/cuda/launch.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

/// A dense weight in device memory, rows as the checkpoint stores them: [experts, out, in].
struct DenseView {
  const std::uint8_t* rows = nullptr;
  DType dtype = DType::kBF16;
  int experts = 0, out = 0, in = 0;
};

/// out[t] = weight · x[t], plus residual[t] where there is one.
void run_dense(const LaunchContext& context, const DenseView& weight, const TensorView& x,
               const TensorView& out, const TensorView& residual);

/// The same per assignment: out[p] = weight[expert of p] · x[row of p].
void run_dense_experts(const LaunchContext& context, const DenseView& weight, const ExpertList& list,
                       ExpertRows rows, const TensorView& x, const TensorView& out);

}  // namespace mererun::cuda
