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
/// Whether the kernel of a few dozen rows (fewer than kTiledRows) serves a layout on this GPU.
bool has_middle_kernel(const LaunchContext& context, const AffineView& layout, int rows);
/// The order of codes that run_affine takes: planes where a kernel of warpgroups runs.
CodeOrder code_order(const LaunchContext& context, const AffineView& layout, int rows);
/// The same before it is known which linears will read the rows: the order of most.
CodeOrder code_order(const LaunchContext& context, int rows);

/// Quantised linears of one layout over rows in its code_order; at most kMostTargets. Errors: kUnsupported
/// for rows so long that not even one column of an eighth fits in shared memory.
void run_affine(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x);

/// Reports rows that do not fit: kUnsupported.
[[noreturn]] void fail_no_room(const AffineView& layout);

/// True for two weights of one shape in 4 bits, groups of 64, with bf16 sides.
bool can_pair(const AffineView& gate, const AffineView& up);
/// Whether run_affine_gated serves them for so many rows: for more, two linears keep more warps at work.
bool can_pair(const LaunchContext& context, const AffineView& gate, const AffineView& up, int rows);

/// out[t] = silu(gate · x[t]) * (up · x[t]), x in rows.
void run_affine_gated(const LaunchContext& context, AffineScratch& scratch, const AffineView& gate,
                      const AffineView& up, const ActivationCodes& x, const TensorView& out);

}  // namespace mererun::cuda
