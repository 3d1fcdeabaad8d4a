#pragma once

#include "kernels/cuda/affine_launch.cuh"
#include "kernels/cuda/affine_narrow_launch.cuh"
#include "kernels/cuda/expert_linear.h"
#include "kernels/numerics.h"

namespace mererun::cuda {

/// Tiles of every entry of an expert list; units are entry-major.
struct ExpertWork {
  static constexpr bool kGathered = true;

  ExpertList list;
  ExpertRows rows_read;
  const std::uint8_t *weight, *second;  // second: up, where gate and up are paired
  std::int64_t tile_bytes, expert_bytes;
  Matrix<float> out;
  int rows, tiles;

  __device__ __forceinline__ int units() const { return *list.entries * tiles; }
  __device__ __forceinline__ const std::uint8_t* tile(int unit, int r) const {
    const int entry = unit / tiles;
    return (r == 0 ? weight : second) + list.entry_expert[entry] * expert_bytes +
           (unit - entry * tiles) * tile_bytes;
  }
  __device__ __forceinline__ int columns(int unit) const { return list.entry_count[unit / tiles]; }
  __device__ __forceinline__ std::int64_t row(int unit, int column) const {
    return list.row_read(rows_read, list.entry_first[unit / tiles] + column);
  }
  /// The 16 weight rows of a unit, found once for many results.
  struct Rows {
    Matrix<float> out;  // from the entry's first place on
    int columns, first, end;
    __device__ __forceinline__ void store(int column, int row, float value) const {
      if (first + row < end && column < columns) out.row(column)[first + row] = value;
    }
    __device__ __forceinline__ void store_pair(int column, int row, float gate, float up) const {
      store(column, row, numerics::silu_f32(gate) * up);
    }
  };
  __device__ __forceinline__ Rows rows_of(int unit) const {
    const int entry = unit / tiles;
    return {{out.row(list.entry_first[entry]), out.stride},
            list.entry_count[entry],
            (unit - entry * tiles) * kTileRows,
            rows};
  }
  __device__ __forceinline__ void store(int unit, int, int column, int row, float value) const {
    rows_of(unit).store(column, row, value);
  }
  __device__ __forceinline__ void store_pair(int unit, int column, int row, float gate, float up) const {
    rows_of(unit).store_pair(column, row, gate, up);
  }
};

/// The kernel for any layout.
template <int kColumnTiles, int kBits>
void launch_gathered(const LaunchContext& context, const AffineView& layout, const ExpertWork& work,
                     const ActivationCodes& x) {
  const int most = most_entries(work.list.assignments(), work.list.experts, work.list.width);
  const AffinePlan plan = plan_affine(layout, kColumnTiles, static_cast<std::int64_t>(most) * work.tiles,
                                      false, limits_of(context));
  AffineLaunch p;
  p.layout = layout;
  p.x = x;
  p.slices = plan.slices;
  // A few rows are copied by every block: reading them from the cache, step by step, waits every time.
  const std::int64_t copied =
      plan.shared_bytes + (static_cast<std::int64_t>(x.code_vectors()) + x.side_vectors()) * 16;
  p.copies_input = copied <= context.shared_bytes_per_block && x.rows <= kMostCopiedRows;
  constexpr auto kKernel = affine_kernel<kColumnTiles, kBits, false, ExpertWork>;
  const auto bytes = static_cast<std::size_t>(p.copies_input ? copied : plan.shared_bytes);
  allow_all_shared<kKernel>(context);
  launch(context, "expert_mlp", kKernel,
         {dim3(static_cast<unsigned>(plan.blocks)), dim3(32 * affine_warps(kColumnTiles)), bytes}, work, p);
}

inline ExpertWork make_expert_work(const AffineView& weight, const AffineView* second, const ExpertList& list,
                                   ExpertRows rows, const TensorView& out) {
  ExpertWork work{};
  work.list = list;
  work.rows_read = rows;
  work.weight = weight.records;
  work.second = second == nullptr ? nullptr : second->records;
  work.tile_bytes = weight.tile_bytes();
  work.expert_bytes = weight.expert_bytes();
  work.out = matrix<float>(out);
  work.rows = weight.out;
  work.tiles = weight.tiles();
  return work;
}

/// The same for the narrow kernel.
template <bool kPair>
struct NarrowExperts : ExpertWork {
  static constexpr bool kPaired = kPair;
  static constexpr int kTiles = kPair ? 2 : 1;
};

/// The narrow kernel, for lists whose width is its columns.
template <bool kPaired>
void launch_experts_narrow(const LaunchContext& context, const AffineView& layout, const ExpertWork& experts,
                           const ActivationCodes& x) {
  const NarrowExperts<kPaired> work{experts};
  const std::int64_t units =
      static_cast<std::int64_t>(most_entries(work.list.assignments(), work.list.experts, work.list.width)) *
      work.tiles;
  const auto run = [&]<int kQuads>() {
    // A few rows are copied by every block: reading them from the cache, step by step, waits every time.
    if (x.rows <= kMostCopiedRows &&
        launch_narrow<kQuads, 4, 16, 6, false>(context, nullptr, layout, work, units, x))
      return;
    launch_narrow<kQuads, 4, 16, 6, true>(context, nullptr, layout, work, units, x);
  };
  work.list.width == 4 ? run.template operator()<1>() : run.template operator()<2>();
}

/// The tile kernel, for lists whose width is its columns: 32.
template <bool kPaired>
void launch_expert_tiles(const LaunchContext& context, const AffineView& layout, const ExpertWork& work,
                         const ActivationCodes& x) {
  using Kernel = AffineTileKernel<4, 1, kPaired, ExpertWork>;
  AffineTileLaunch p;
  p.layout = layout;
  p.x = x;
  p.parts = static_cast<int>(blocks_for(work.tiles, Kernel::kUnits));
  launch_tiles<4, 1, kPaired>(context, "expert_mlp", work, p,
                              most_entries(work.list.assignments(), work.list.experts, work.list.width));
}

/// The same with matrix instructions of a warpgroup, for codes in plane order.
void run_experts_warpgroups(const LaunchContext& context, const AffineView& layout, const ExpertWork& work,
                            const ActivationCodes& x);
void run_experts_gated_warpgroups(const LaunchContext& context, const AffineView& layout,
                                  const ExpertWork& work, const ActivationCodes& x);

}  // namespace mererun::cuda
