#pragma once

#include <type_traits>

#include "kernels/cuda/affine_kernel.cuh"
#include "kernels/cuda/affine_linear.h"
#include "kernels/cuda/affine_tile.cuh"

namespace mererun::cuda {

inline AffineLimits limits_of(const LaunchContext& context) {
  return {context.multiprocessors, context.shared_bytes_per_block};
}

/// Launches the staged kernel over all rows of x, in pieces of 8 * kColumnTiles.
template <int kColumnTiles, int kBits, bool kCommon, class Work>
void launch_staged(const LaunchContext& context, AffineScratch& scratch, const AffineView& layout,
                   const AffinePlan& plan, const Work& work, const ActivationCodes& x) {
  AffineLaunch p;
  p.layout = layout;
  p.x = x;
  p.rows = x.rows;
  p.pieces = static_cast<int>(blocks_for(x.rows, 8 * kColumnTiles));
  p.slices = plan.slices;
  p.split = plan.split;
  p.groups_per_block = plan.groups_per_block;
  if (plan.split > 1) {
    const auto meetings = static_cast<std::size_t>(work.units()) * static_cast<std::size_t>(p.pieces);
    const std::size_t results = meetings * static_cast<std::size_t>(plan.split * kColumnTiles * 128);
    p.partials = scratch.partials.get_array<float>(results, context);
    p.tickets = scratch.tickets.get_array<int>(meetings, context);
  }
  constexpr auto kKernel = affine_kernel<kColumnTiles, kBits, kCommon, Work>;
  const auto bytes = static_cast<std::size_t>(plan.shared_bytes);
  allow_all_shared<kKernel>(context);
  launch(context, "linear", kKernel,
         {dim3(static_cast<unsigned>(plan.blocks * p.pieces)), dim3(32 * affine_warps(kColumnTiles)), bytes},
         work, p);
}

/// Launches the tile kernel on `wholes` * p.parts blocks.
template <int kBits, int kColumnWarps, bool kPaired, class Work>
void launch_tiles(const LaunchContext& context, const char* where, const Work& work,
                  const AffineTileLaunch& p, std::int64_t wholes) {
  using Kernel = AffineTileKernel<kBits, kColumnWarps, kPaired, Work>;
  constexpr auto kKernel = affine_tile_kernel<kBits, kColumnWarps, kPaired, Work>;
  allow_all_shared<kKernel>(context);
  launch(context, where, kKernel,
         {dim3(static_cast<unsigned>(wholes * p.parts)), dim3(Kernel::kThreads),
          static_cast<std::size_t>(Kernel::kSharedBytes)},
         work, p);
}

/// Launches the tile kernel over all rows of x.
template <int kBits, class Work>
void run_tiles(const LaunchContext& context, const AffineView& layout, const ActivationCodes& x,
               const Work& work) {
  constexpr int kColumnWarps = 2;
  using Kernel = AffineTileKernel<kBits, kColumnWarps, false, Work>;
  AffineTileLaunch p;
  p.layout = layout;
  p.x = x;
  p.parts = static_cast<int>(blocks_for(x.rows, Kernel::kColumns));
  launch_tiles<kBits, kColumnWarps, false>(context, "linear", work, p,
                                           blocks_for(work.units(), Kernel::kUnits));
}

/// Runs the work over all rows of x, in pieces of up to 16 columns (layouts that are not common 32)
/// where their codes fit in shared memory, else narrower. Two tiles of columns keep 16 warps busy; four would
/// leave 8, which wait for memory and for each other.
template <int kBits, bool kCommon, class Work>
void run_staged(const LaunchContext& context, AffineScratch& scratch, const AffineView& layout,
                const ActivationCodes& x, const Work& work) {
  const auto attempt = [&]<int kColumnTiles>(std::integral_constant<int, kColumnTiles>) {
    const AffinePlan plan = plan_affine(layout, kColumnTiles, work.units(), true, limits_of(context));
    if (plan.fits) launch_staged<kColumnTiles, kBits, kCommon>(context, scratch, layout, plan, work, x);
    return plan.fits;
  };
  if constexpr (!kCommon) {
    if (attempt(std::integral_constant<int, 4>{})) return;
  } else {
    if (x.rows >= kTiledRows) return run_tiles<kBits>(context, layout, x, work);
    if (attempt(std::integral_constant<int, 2>{})) return;
    if (attempt(std::integral_constant<int, 1>{})) return;
  }
  fail_no_room(layout);
}

}  // namespace mererun::cuda
