#pragma once

#include <type_traits>

#include "kernels/cuda/affine_kernel.cuh"
#include "kernels/cuda/affine_linear.h"

namespace mererun::cuda {

inline AffineLimits limits_of(const LaunchContext& context) {
  return {context.multiprocessors, context.shared_bytes_per_block};
}

/// Launches the staged kernel over columns [first, first + columns) of block `block` of x.
template <int kColumnTiles, int kRowTiles, int kBits, bool kCommon, bool kPaired, class Work>
void launch_staged(const LaunchContext& context, AffineScratch& scratch, const AffineView& layout,
                   const AffinePlan& plan, const Work& work, const ActivationCodes& x, int block, int first,
                   int columns) {
  AffineLaunch p;
  p.layout = layout;
  p.x = x;
  p.block = block;
  p.first_column = first;
  p.columns = columns;
  p.slices = plan.slices;
  p.split = plan.split;
  p.groups_per_block = plan.groups_per_block;
  if (plan.split > 1) {
    const auto units = static_cast<std::size_t>(work.units());
    const std::size_t results = units * static_cast<std::size_t>(plan.split * kRowTiles * kColumnTiles * 128);
    p.partials = scratch.partials.get_array<float>(results, context.stream);
    p.tickets = scratch.tickets.get_array<int>(units, context.stream);
  }
  constexpr auto kKernel = affine_kernel<kColumnTiles, kRowTiles, kBits, kCommon, kPaired, Work>;
  const auto bytes = static_cast<std::size_t>(plan.shared_bytes);
  allow_all_shared<kKernel>(context);
  launch(context, "linear", kKernel,
         {dim3(static_cast<unsigned>(plan.blocks)), dim3(32 * affine_warps(kColumnTiles)), bytes}, work, p);
}

/// Calls run(block, first column, columns) over all rows of x in pieces of at most `most` columns.
template <typename Run>
void for_column_pieces(const ActivationCodes& x, int most, Run run) {
  for (int block = 0; block * kBlockColumns < x.rows; ++block) {
    const int columns = x.columns_of(block);
    for (int first = 0; first < columns; first += most) {
      run(block, first, columns - first < most ? columns - first : most);
    }
  }
}

/// Runs the work that make_work(row tiles, first row, columns) describes over all rows of x: pieces of 32
/// columns where their codes fit in shared memory, else narrower.
template <int kRowTilesOfOne, int kBits, bool kCommon, bool kPaired, class MakeWork>
void run_staged(const LaunchContext& context, AffineScratch& scratch, const AffineView& layout,
                const ActivationCodes& x, MakeWork make_work) {
  const auto attempt = [&](auto tiles, auto row_tiles, int block, int first, int columns) {
    constexpr int kColumnTiles = decltype(tiles)::value;
    constexpr int kRowTiles = decltype(row_tiles)::value;
    const auto work = make_work(row_tiles, block * kBlockColumns + first, columns);
    const AffinePlan plan = plan_affine(layout, kColumnTiles, work.units(), true, limits_of(context));
    if (!plan.fits) return false;
    launch_staged<kColumnTiles, kRowTiles, kBits, kCommon, kPaired>(context, scratch, layout, plan, work, x,
                                                                    block, first, columns);
    return true;
  };
  using One = std::integral_constant<int, 1>;
  using Two = std::integral_constant<int, 2>;
  using Four = std::integral_constant<int, 4>;
  for (int most = kBlockColumns; most >= 1; most /= 2) {
    bool fits = true;
    for_column_pieces(x, most, [&](int block, int first, int columns) {
      if (!fits) return;
      if constexpr (!kCommon) {
        fits = attempt(Four{}, One{}, block, first, columns);
      } else if (columns <= 8) {
        fits = attempt(One{}, std::integral_constant<int, kRowTilesOfOne>{}, block, first, columns);
      } else if (columns <= 16) {
        fits = attempt(Two{}, Two{}, block, first, columns);
      } else {
        fits = attempt(Four{}, Two{}, block, first, columns);
      }
    });
    if (fits) return;
  }
  fail_no_room(layout);
}

}  // namespace mererun::cuda
