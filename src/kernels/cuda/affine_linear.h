#pragma once

#include <span>

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/launch.h"
#include "tensor/tensor_view.h"

namespace mererun::cuda {

inline constexpr int kMostTargets = 4;

/// out[t] = weight · x[t], plus residual[t] where there is one.
struct AffineTarget {
  AffineView weight;
  TensorView out, residual;
};

/// Partial results and tickets of launches whose blocks share row tiles.
struct AffineScratch {
  DeviceScratch partials, tickets;
};

/// Whether the kernel of warpgroups serves a layout on this GPU: it takes groups by twos.
bool has_warpgroup_kernel(const LaunchContext& context, const AffineView& layout);
/// The order of codes that run_affine takes: planes where the kernel of warpgroups runs.
CodeOrder code_order(const LaunchContext& context, const AffineView& layout, int rows);
/// The same before it is known which linears will read the rows: the order of most.
CodeOrder code_order(const LaunchContext& context, int rows);

/// Quantised linears of one layout over rows in its code_order; at most kMostTargets. Errors: kUnsupported
/// for rows so long that not even one column of an eighth fits in shared memory.
void run_affine(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x);

/// Reports rows that do not fit: kUnsupported.
[[noreturn]] void fail_no_room(const AffineView& layout);

/// True if run_affine_gated serves the pair: 4 bits in groups of 64 with bf16 sides.
bool can_pair(const AffineView& gate, const AffineView& up);
/// Rows up to which it is the faster way: beyond, two linears keep more warps at work.
inline constexpr int kMostPairedRows = kMostNarrowRows;

/// out[t] = silu(gate · x[t]) * (up · x[t]).
void run_affine_gated(const LaunchContext& context, AffineScratch& scratch, const AffineView& gate,
                      const AffineView& up, const ActivationCodes& x, const TensorView& out);

}  // namespace mererun::cuda
