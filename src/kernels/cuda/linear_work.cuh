#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/affine_launch.cuh"
#include "kernels/cuda/affine_linear.h"
#include "kernels/cuda/affine_narrow_launch.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

/// Row tiles of up to four weights that share their input: kRowTiles neighbouring tiles a unit.
template <int kRowTiles>
struct LinearWork {
  static constexpr bool kGathered = false, kPaired = false;
  static constexpr int kTiles = kRowTiles;

  struct Target {
    const std::uint8_t* records;
    std::int64_t tile_bytes;
    Matrix<float> out;
    Matrix<const float> residual;
    int rows, tiles, end_unit;
  };
  Target targets[kMostTargets];
  int count = 0, total_units = 0;

  __host__ __device__ int units() const { return total_units; }

  __device__ __forceinline__ int target_of(int unit) const {
    int j = 0;
    while (unit >= targets[j].end_unit) ++j;
    return j;
  }
  __device__ __forceinline__ int tile_of(int unit, int j, int r) const {
    return (unit - (j == 0 ? 0 : targets[j - 1].end_unit)) * kRowTiles + r;
  }
  __device__ __forceinline__ const std::uint8_t* tile(int unit, int r) const {
    const int j = target_of(unit);
    const int wanted = tile_of(unit, j, r);
    const int tile =
        wanted < targets[j].tiles ? wanted : targets[j].tiles - 1;  // an odd one out is read twice
    return targets[j].records + tile * targets[j].tile_bytes;
  }
  /// The 16 weight rows of a row tile, found once for many results.
  struct Rows {
    Matrix<float> out;
    Matrix<const float> residual;
    int first, end;
    __device__ __forceinline__ void store(int column, int row, float value) const {
      const int n = first + row;
      if (n >= end) return;
      out.row(column)[n] = residual.data == nullptr ? value : residual.row(column)[n] + value;
    }
  };
  __device__ __forceinline__ Rows rows_of(int unit, int r = 0) const {
    const int j = target_of(unit);
    const Target& t = targets[j];
    return {t.out, t.residual, tile_of(unit, j, r) * kTileRows, t.rows};
  }
  __device__ __forceinline__ void store(int unit, int r, int column, int row, float value) const {
    rows_of(unit, r).store(column, row, value);
  }
};

template <int kRowTiles>
LinearWork<kRowTiles> make_linear_work(std::span<const AffineTarget> targets) {
  LinearWork<kRowTiles> work{};
  for (const AffineTarget& target : targets) {
    auto& to = work.targets[work.count++];
    to.records = target.weight.records;
    to.tile_bytes = target.weight.tile_bytes();
    to.out = matrix<float>(target.out);
    if (!target.residual.empty()) to.residual = matrix<const float>(target.residual);
    to.rows = target.weight.out;
    to.tiles = target.weight.tiles();
    work.total_units += (to.tiles + kRowTiles - 1) / kRowTiles;
    to.end_unit = work.total_units;
  }
  return work;
}

/// The targets, whose layout has kBits stored bits and is common or not.
template <int kBits, bool kCommon>
void run_linear(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x) {
  const AffineView& layout = targets[0].weight;
  if constexpr (kCommon) {
    if (x.order == CodeOrder::kRows)
      return run_narrow<kBits>(context, scratch, layout, x,
                               [&]<int kTiles>() { return make_linear_work<kTiles>(targets); });
  }
  run_staged<kBits, kCommon>(context, scratch, layout, x, make_linear_work<1>(targets));
}

/// Matching tiles of gate and up: row tile 0 and 1 of a unit.
struct GatedWork {
  static constexpr bool kGathered = false, kPaired = true;
  static constexpr int kTiles = 2;

  const std::uint8_t *gate, *up;
  std::int64_t tile_bytes;
  Matrix<float> out;
  int rows = 0, tiles = 0;

  __host__ __device__ int units() const { return tiles; }

  __device__ __forceinline__ const std::uint8_t* tile(int unit, int r) const {
    return (r == 0 ? gate : up) + unit * tile_bytes;
  }
  __device__ void store(int, int, int, int, float) const {}
  __device__ __forceinline__ void store_pair(int unit, int column, int row, float gate_value,
                                             float up_value) const {
    const int n = unit * kTileRows + row;
    if (n >= rows) return;
    out.row(column)[n] = numerics::silu_f32(gate_value) * up_value;
  }
};

}  // namespace mererun::cuda
