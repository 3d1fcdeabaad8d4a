#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

// How the kernel of a few dozen activation rows (affine_middle.cuh) is spread over blocks and warpgroups.
// None of this changes a bit: a slice is summed by one warp in order, and slices join by the contract's tree.

/// Columns that the form for this many activation rows is compiled for.
constexpr int middle_columns(int rows) {
  return rows <= kBlockColumns / 2 ? kBlockColumns / 2 : kBlockColumns;
}

/// Warpgroups of a block at most: five have 96 registers a thread.
inline constexpr int kMostWarpgroups = 5;
inline constexpr int kRunRows = 64;  // weight rows of a warpgroup: four row tiles

inline constexpr int kLeastMiddleStages = 2, kMostMiddleStages = 4;  // chunks of two records in a warp's ring

struct MiddlePlan {
  bool fits = false;
  int split_shift = 0;   // log2 of the blocks that share a run, each with its part of the slices
  int member_shift = 0;  // log2 of the warpgroups of a block that share a run's part
  int warpgroups = 0;    // of a block
  int blocks = 0;        // of each part
  int stages = 0;        // of a warp's ring
  std::int64_t shared_bytes = 0;
};

/// Shared memory of a block: barriers; codes and sides of its part's `groups` groups; results of members.
inline std::int64_t middle_fixed_bytes(int columns, int group, int groups, int members) {
  const std::int64_t staged = static_cast<std::int64_t>(groups) * columns * (2 * group + 8);
  return 128 + staged + (members > 1 ? std::int64_t{kMostWarpgroups - 1} * kRunRows * columns * 4 : 0);
}

/// The most warpgroups, of at most `wanted`, that leave room for rings of kLeastMiddleStages chunks; 0: not
/// one. Fills in what a block takes.
inline int fit_warpgroups(MiddlePlan& plan, int columns, const AffineView& w, int groups, int wanted,
                          const AffineLimits& limits) {
  const int members = 1 << plan.member_shift;
  const std::int64_t fixed = middle_fixed_bytes(columns, w.group, groups, members);
  for (plan.warpgroups = wanted; plan.warpgroups >= members; plan.warpgroups -= members) {
    const std::int64_t stage = std::int64_t{4} * plan.warpgroups * 2 * w.record_bytes();
    const std::int64_t stages = (limits.shared_per_block - fixed) / stage;
    if (stages < kLeastMiddleStages) continue;
    plan.stages = static_cast<int>(std::min<std::int64_t>(stages, kMostMiddleStages));
    plan.shared_bytes = fixed + plan.stages * stage;
    return plan.warpgroups;
  }
  return 0;
}

/// The plan with the least work for the busiest block, of those that fit. `tiles`: row tiles of all targets;
/// whether one fits depends on the layout alone.
inline MiddlePlan plan_middle(int columns, const AffineView& w, int tiles, const AffineLimits& limits) {
  const int slices = numerics::slice_count(w.in);
  const int runs = (tiles + 3) / 4;
  const double slice_groups = static_cast<double>(w.groups()) / slices;
  MiddlePlan best;
  double least = 0;
  for (int split_shift = 0; 1 << split_shift <= slices; ++split_shift) {
    const int split = 1 << split_shift;
    if (split > limits.multiprocessors) break;
    int most = 0;
    for (int part = 0; part < split; ++part)
      most = std::max(most, groups_of_part(part, split, slices, w.groups()));
    const int blocks = std::min(limits.multiprocessors / split, runs);
    const int block_runs = (runs + blocks - 1) / blocks;
    for (int member_shift = 0; member_shift <= 2 && split << member_shift <= slices; ++member_shift) {
      const int members = 1 << member_shift;
      const int wanted = members == 1 ? std::min(kMostWarpgroups, block_runs) : kMostWarpgroups - 1;
      MiddlePlan plan{true, split_shift, member_shift, 0, blocks};
      if (fit_warpgroups(plan, columns, w, most, wanted, limits) == 0) continue;
      // In times of a slice by one warpgroup of many, fitted to an H200: few warpgroups at work leave memory
      // idle; parts that meet in memory wait for it, longer the more they are.
      const int teams = plan.warpgroups / members;
      const double end = (split > 1 ? 16 + 4 * split : members > 1 ? 2 : 1) / slice_groups;
      double cost = 0;
      for (int left = block_runs; left > 0; left -= teams)
        cost += std::max(std::min(left, teams) * members, 3) * (slices / (split * members)) + end;
      if (best.fits && cost >= least) continue;
      best = plan;
      least = cost;
    }
  }
  return best;
}

}  // namespace mererun::cuda
