#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/affine_view.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

// How a quantised linear is spread over blocks and warps. None of this changes a bit: a slice of a row's
// groups is always summed by one warp in order, and slices join by the contract's tree.

/// Warps of a block: 16 have 128 registers each, which two column tiles still fit.
constexpr int affine_warps(int column_tiles) { return column_tiles <= 2 ? 16 : 8; }
inline constexpr int kJoinPitch = 20;  // floats between columns of a warp's results: free of bank conflicts

/// Records a warp loads at a time, while it multiplies as many.
constexpr int affine_held(int column_tiles, int stored_bits) {
  const int words = column_tiles <= 2 ? 30 : 24;  // registers of one chunk
  const int held = words / (stored_bits == 4 ? 6 : 10);
  return held < 1 ? 1 : held;
}

/// Columns (activation rows) a block of codes holds; one launch of a linear kernel works on one block.
inline constexpr int kBlockColumns = 32;

/// Activation rows up to which the narrow kernel is the faster one.
inline constexpr int kMostNarrowRows = 12;
/// The same where the codes of a weight's input fill shared memory, so that blocks share rows of it.
inline constexpr int kMostNarrowRowsOfLong = 8, kLongColumns = 8192;

/// Activation rows from which on the tile kernel is the faster one.
inline constexpr int kTiledRows = 96;

struct AffineLimits {
  int multiprocessors = 0;
  int shared_per_block = 0;
};

/// One launch over activation rows that fill at most `column_tiles` tiles of 8.
struct AffinePlan {
  bool fits = false;
  int slices = 1;
  int split = 1;  // blocks that share a row tile, each with slices / split slices
  int groups_per_block = 0;
  std::int64_t shared_bytes = 0;
  int blocks = 0;
};

inline int groups_of_part(int part, int parts, int slices, int groups) {
  const int per = slices / parts;
  return numerics::slice_begin((part + 1) * per, slices, groups) -
         numerics::slice_begin(part * per, slices, groups);
}

/// Bytes of one staged group of `columns` activation rows: codes and sides.
inline std::int64_t staged_group_bytes(const AffineView& w, int columns) {
  return static_cast<std::int64_t>(w.steps()) * columns * 64 + columns * 8;
}

/// The split with the fewest parts whose activations fit in shared memory. `units` counts what one team of
/// slices / split warps does at a time; `staged` false: activations are read through the cache.
inline AffinePlan plan_affine(const AffineView& w, int column_tiles, std::int64_t units, bool staged,
                              const AffineLimits& limits) {
  AffinePlan plan;
  plan.slices = numerics::slice_count(w.in);
  const std::int64_t fixed =
      static_cast<std::int64_t>(affine_warps(column_tiles)) * column_tiles * 8 * kJoinPitch * 4 * 2 + 64;
  for (int split = 1; split <= plan.slices; split *= 2) {
    int most = 0;
    for (int part = 0; part < split; ++part) {
      most = std::max(most, groups_of_part(part, split, plan.slices, w.groups()));
    }
    const std::int64_t bytes = fixed + (staged ? most * staged_group_bytes(w, 8 * column_tiles) : 0);
    if (bytes > limits.shared_per_block) continue;
    plan.fits = true;
    plan.split = split;
    plan.groups_per_block = most;
    plan.shared_bytes = bytes;
    break;
  }
  if (!plan.fits) return plan;
  // Units are dealt out block by block first, so that each block has work before one has two.
  const std::int64_t needed = std::min<std::int64_t>(units, limits.multiprocessors) * plan.split;
  const std::int64_t room = std::max(limits.multiprocessors / plan.split, 1) * plan.split;
  plan.blocks = static_cast<int>(std::min(needed, room));
  return plan;
}

}  // namespace mererun::cuda
