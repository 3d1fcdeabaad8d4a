#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/expert_list.h"
#include "kernels/cuda/launch.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

/// Assignments an entry may hold, by the rows of the call: in decode and verification few rows share an
/// expert.
inline constexpr int kNarrowEntry = 4, kMiddleEntry = 8, kWideEntry = 32;
inline int expert_width(int rows) {
  if (rows <= 16) return kNarrowEntry;
  return rows <= 64 ? kMiddleEntry : kWideEntry;
}

/// Rows up to which every block copies all of its input to shared memory, or codes it there: beyond, codes
/// are read through the cache.
inline constexpr int kMostCopiedRows = 40;

/// The order of codes that the functions below take for a weight and a list.
CodeOrder expert_code_order(const LaunchContext& context, const AffineView& weight, const ExpertList& list);

/// out[p] = weight[expert of p] · x[row of p] for every assignment p.
void run_affine_experts(const LaunchContext& context, const AffineView& weight, const ExpertList& list,
                        ExpertRows rows, const ActivationCodes& x, const TensorView& out);

/// out[p] = silu(gate · x) * (up · x), x the token's row. For pairs that can_pair allows.
void run_affine_experts_gated(const LaunchContext& context, const AffineView& gate, const AffineView& up,
                              const ExpertList& list, const ActivationCodes& x, const TensorView& out);

}  // namespace mererun::cuda
