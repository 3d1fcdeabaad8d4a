#pragma once

#include <span>

#include "kernels/cuda/affine_linear.h"

namespace mererun::cuda {

// The compiled forms of the quantised linear; run_affine picks one by layout. Each file builds one, so that
// they compile side by side.

using AffineVariant = void (*)(const LaunchContext&, AffineScratch&, std::span<const AffineTarget>,
                               const ActivationCodes&);

/// 4-bit codes, groups of 64, bf16 sides.
void run_affine_4bit(const LaunchContext& context, AffineScratch& scratch,
                     std::span<const AffineTarget> targets, const ActivationCodes& x);
/// 8-bit codes, groups of 64, bf16 sides.
void run_affine_8bit(const LaunchContext& context, AffineScratch& scratch,
                     std::span<const AffineTarget> targets, const ActivationCodes& x);
/// 4- or 8-bit codes, groups of 64, bf16 sides, with matrix instructions of a warpgroup: compute
/// capability 9.0, codes in plane order.
void run_affine_warpgroups(const LaunchContext& context, std::span<const AffineTarget> targets,
                           const ActivationCodes& x);
/// The same for a few dozen rows: has_middle_kernel.
void run_affine_middle(const LaunchContext& context, AffineScratch& scratch,
                       std::span<const AffineTarget> targets, const ActivationCodes& x);
/// Every other layout.
void run_affine_any(const LaunchContext& context, AffineScratch& scratch,
                    std::span<const AffineTarget> targets, const ActivationCodes& x);

}  // namespace mererun::cuda
