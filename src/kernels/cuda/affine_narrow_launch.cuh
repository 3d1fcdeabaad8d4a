#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/affine_linear.h"
#include "kernels/cuda/affine_narrow.cuh"

namespace mererun::cuda {

/// Launches the narrow kernel over `units` units. Rows of x: at most 4 * kQuads where staged. False where
/// they do not fit in shared memory: an eighth of their groups, or all where gathered.
template <int kQuads, int kBits, int kWarps, int kStages, bool kCached, class Work>
bool launch_narrow(const LaunchContext& context, AffineScratch* scratch, const AffineView& layout,
                   const Work& work, std::int64_t units, const ActivationCodes& x) {
  using Kernel = NarrowKernel<kQuads, kBits, kWarps, kStages, kCached, Work>;
  const int slices = numerics::slice_count(layout.in);
  NarrowLaunch p;
  p.x = x;
  p.rows = x.rows;
  p.groups = layout.groups();
  p.slice_shift = std::countr_zero(static_cast<unsigned>(slices));
  p.join_floats = std::min(x.rows, Kernel::kColumns) * kJoinPitch;
  std::int64_t bytes = Kernel::shared_bytes(p.join_floats, 0);
  if constexpr (!kCached) {
    for (; p.split_shift <= p.slice_shift; ++p.split_shift) {
      const int split = 1 << p.split_shift;
      int most = 0;
      for (int part = 0; part < split; ++part)
        most = std::max(most, groups_of_part(part, split, slices, p.groups));
      // Sides of four rows in different banks.
      p.side_stride = (most + 1) & ~1;
      if (p.side_stride % 8 == 0) p.side_stride += 2;
      const std::int64_t row_bytes = most * Kernel::kVectors * 16 + p.side_stride * 8;
      bytes = Kernel::shared_bytes(p.join_floats, row_bytes * x.rows);
      if (bytes <= context.shared_bytes_per_block) break;
      if (Work::kGathered) return false;
    }
    if (p.split_shift > p.slice_shift) return false;
  }
  const int split = 1 << p.split_shift;
  if (split > 1) {
    const auto meetings = static_cast<std::size_t>(units);
    p.partials = scratch->partials.get_array<float>(
        meetings * static_cast<std::size_t>(split * Kernel::kTiles * Kernel::kResults), context);
    p.tickets = scratch->tickets.get_array<int>(meetings, context);
  }
  // Units are dealt out block by block first, so that each block has work before one has two.
  const auto blocks = std::min<std::int64_t>(std::min<std::int64_t>(units, context.multiprocessors) * split,
                                             std::max(context.multiprocessors / split, 1) * split);
  constexpr auto kKernel = narrow_kernel<kQuads, kBits, kWarps, kStages, kCached, Work>;
  allow_all_shared<kKernel>(context);
  launch(context, Work::kGathered ? "expert_mlp" : "linear", kKernel,
         {dim3(static_cast<unsigned>(blocks)), dim3(Kernel::kThreads), static_cast<std::size_t>(bytes)}, work,
         p);
  return true;
}

/// Runs staged work over all rows of x. `make<n>()`: the work in units of n row tiles; pairs have two
/// whatever n is. Errors: as run_affine.
template <int kBits, class Make>
void run_narrow(const LaunchContext& context, AffineScratch& scratch, const AffineView& layout,
                const ActivationCodes& x, Make make) {
  // A chunk of 8-bit codes is about twice as large.
  constexpr auto kStages = [](int stages) { return kBits == 4 ? stages : (stages + 2) / 2; };
  const auto run = [&]<int kQuads, int kTiles, int kWarps, int kDepth>() {
    const auto work = make.template operator()<kTiles>();
    if (!launch_narrow<kQuads, kBits, kWarps, kStages(kDepth), false>(context, &scratch, layout, work,
                                                                      work.units(), x))
      fail_no_room(layout);
  };
  const int rows = x.rows;
  // More warps have more of a long stream under way; launching them takes longer.
  if (rows > 8) return run.template operator()<3, 2, 16, 4>();
  if (rows > 4) return run.template operator()<2, 2, 16, 5>();
  const int teams = 16 / numerics::kLinearSlices * context.multiprocessors;
  if (make.template operator()<1>().units() > teams) return run.template operator()<1, 1, 24, 5>();
  run.template operator()<1, 1, 16, 8>();
}

}  // namespace mererun::cuda
