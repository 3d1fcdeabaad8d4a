#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/device.cuh"

namespace mererun::cuda {

/// What the tile kernel is told beside its work.
struct AffineTileLaunch {
  AffineView layout;  // common; `records` and `out` are the work's
  ActivationCodes x;
  int parts = 1;  // staged: blocks that read the same records; gathered: blocks of one entry
};

/// The quantised linear over many activation rows: a block computes kTiles row tiles by kColumns activation
/// rows, so that a record is unpacked once for 32 columns and codes are read from shared memory once for 32
/// weight rows.
///
/// A warp owns its results from the first group to the last: it goes through the slices one after the other
/// and joins them on the way by the contract's tree, so the bits are those of AffineKernel, where every slice
/// has a warp of its own. Records flow from memory to registers one group ahead, codes through a ring of
/// shared memory. `Work` is AffineKernel's; gathered work has p.layout.tiles() units an entry.
template <int kBits, int kColumnWarps, bool kPaired, class Work>
struct AffineTileKernel {
  static constexpr int kRowTiles = 2;     // of a warp; paired: gate and up
  static constexpr int kColumnTiles = 4;  // of a warp
  static constexpr int kRowWarps = 8 / kColumnWarps;
  static constexpr int kThreads = 256;
  static constexpr int kUnits = kRowWarps * (kPaired ? 1 : kRowTiles);  // of a block
  static constexpr int kColumns = 8 * kColumnTiles * kColumnWarps;
  static constexpr int kSpan = 2;    // groups a stage of the ring
  static constexpr int kStages = 4;  // of the ring
  static constexpr int kGroupVectors = kColumns * 8;
  static constexpr int kStageVectors = kSpan * (kGroupVectors + kColumns / 2);  // codes, then sides
  static constexpr int kSharedBytes = kStages * kStageVectors * 16;
  static constexpr int kStepsAtOnce = kThreads / (kColumns * 4);  // that all threads copy
  static_assert(kStepsAtOnce * kColumns * 4 == kThreads && kSpan * kColumns <= kThreads);

  using Values = float[kRowTiles][kColumnTiles][4];

  const Work& work;
  const AffineTileLaunch& p;
  uint4* ring;
  int lane, groups;
  int first_unit, end_unit, own_unit;  // of the block; of the warp
  int first_row, columns, own_column;  // staged: rows of x of the block

  // What this thread copies: one vector of a column's steps, and the sides of a column's groups.
  const uint4* codes_from;
  const float2* sides_from;
  int codes_stride, sides_stride;
  bool copies_codes, copies_sides;

  __device__ AffineTileKernel(const Work& w, const AffineTileLaunch& launch, uint4* shared)
      : work(w), p(launch), ring(shared) {
    lane = static_cast<int>(threadIdx.x & 31);
    groups = p.layout.groups();
    const int warp = static_cast<int>(threadIdx.x / 32);
    own_column = warp % kColumnWarps * 8 * kColumnTiles;
    const int whole = static_cast<int>(blockIdx.x) / p.parts;
    const int part = static_cast<int>(blockIdx.x) % p.parts;
    if constexpr (Work::kGathered) {
      first_unit = whole * p.layout.tiles() + part * kUnits;
      end_unit = (whole + 1) * p.layout.tiles();
      first_row = 0;
    } else {
      first_unit = whole * kUnits;
      end_unit = work.units();
      first_row = part * kColumns;
      columns = p.x.rows - first_row;
    }
    own_unit = first_unit + warp / kColumnWarps * (kPaired ? 1 : kRowTiles);
  }

  /// Finds the columns that this thread copies. Columns past the last stay as they are: nothing stores what
  /// comes of them.
  __device__ __forceinline__ void aim() {
    const auto find = [&](int column, auto&& use) {
      if (column >= columns) return false;
      std::int64_t row = first_row + column;
      if constexpr (Work::kGathered) row = work.row(first_unit, column);
      const int block = static_cast<int>(row / kBlockColumns);
      use(block, static_cast<int>(row % kBlockColumns), p.x.columns_of(block));
      return true;
    };
    const int t = static_cast<int>(threadIdx.x);
    const int step = t / (kColumns * 4);
    copies_codes = find(t / 4 % kColumns, [&](int block, int c, int wide) {
      codes_stride = wide * 4;
      codes_from = p.x.codes + p.x.codes_offset(block) + step * codes_stride + c * 4 + t % 4;
    });
    const int group = t / kColumns;
    copies_sides = group < kSpan && find(t % kColumns, [&](int block, int c, int wide) {
                     sides_stride = (wide + 1) & ~1;
                     sides_from = p.x.sides + p.x.sides_offset(block) + group * sides_stride + c;
                   });
  }

  /// Starts copying the codes and sides of stage `s`; of groups past the last one nothing.
  __device__ __forceinline__ void copy_stage(int s) const {
    uint4* to = ring + s % kStages * kStageVectors + threadIdx.x;
    const int first = s * kSpan;
    const int t = static_cast<int>(threadIdx.x);
    if (copies_codes) {
#pragma unroll
      for (int i = 0; i < 2 * kSpan / kStepsAtOnce; ++i) {
        if (first + i * kStepsAtOnce / 2 < groups)
          copy_async16(to + i * kThreads,
                       codes_from + static_cast<std::int64_t>(2 * first + i * kStepsAtOnce) * codes_stride);
      }
    }
    if (copies_sides && first + t / kColumns < groups) {
      auto* sides = reinterpret_cast<float2*>(ring + s % kStages * kStageVectors + kSpan * kGroupVectors);
      copy_async8(sides + t, sides_from + static_cast<std::int64_t>(first) * sides_stride);
    }
    copy_commit();
  }

  __device__ __forceinline__ void load(Record<kBits> (&records)[kRowTiles],
                                       const std::uint8_t* const (&tiles)[kRowTiles], int g) const {
    if (g >= groups) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      records[r].load_shared(tiles[r] + static_cast<std::int64_t>(g) * Record<kBits>::kBytes, lane);
    }
  }

  /// One group; `codes` and `sides` are those of this warp's first column.
  __device__ __forceinline__ void add_records(const Record<kBits> (&records)[kRowTiles], const uint4* codes,
                                              const float2* sides, Values& acc) const {
    std::uint32_t a[kRowTiles][2][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      records[r].operand(a[r][0], 0);
      records[r].operand(a[r][1], 1);
    }
    const int start[4] = {kSumStart, kSumStart, kSumStart, kSumStart};
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const uint4 x0 = codes[32 * n + lane];
      const uint4 x1 = codes[kColumns * 4 + 32 * n + lane];
      const float4 d = *reinterpret_cast<const float4*>(sides + 8 * n + 2 * (lane % 4));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        int high[4], low[4];
        multiply<kBits>(high, a[r][0], x0.x, x0.y, start);
        multiply<kBits>(low, a[r][0], x0.z, x0.w, start);
        multiply<kBits>(high, a[r][1], x1.x, x1.y, high);
        multiply<kBits>(low, a[r][1], x1.z, x1.w, low);
        add_group(acc[r][n], high, low, narrow_sides(records[r].sides), d);
      }
    }
  }

  /// Results that wait for their partner in the contract's tree: of one slice, of two, of four.
  struct Waiting {
    Values one, two, four;
  };
  static __device__ __forceinline__ void keep(Values& to, const Values& acc) {
    each([&](int r, int n, int e) { to[r][n][e] = acc[r][n][e]; });
  }
  static __device__ __forceinline__ void join(const Values& left, Values& acc) {
    each([&](int r, int n, int e) { acc[r][n][e] = left[r][n][e] + acc[r][n][e]; });
  }
  template <typename Use>
  static __device__ __forceinline__ void each(Use use) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) use(r, n, e);
      }
    }
  }
  /// Ends slice j of 8: acc joins what waits for it, and waits itself unless it is the last.
  static __device__ __forceinline__ void end_slice(int j, Waiting& waiting, Values& acc) {
    if ((j & 1) == 0) return keep(waiting.one, acc);
    join(waiting.one, acc);
    if ((j & 2) == 0) return keep(waiting.two, acc);
    join(waiting.two, acc);
    if ((j & 4) == 0) return keep(waiting.four, acc);
    join(waiting.four, acc);
  }

  __device__ __forceinline__ void store(const Values& acc) const {
    const auto each_result = [&](int r, auto&& use) {
      const int unit = kPaired ? own_unit : own_unit + r;
      if (unit >= end_unit) return;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = own_column + 8 * n + 2 * (lane % 4) + (e & 1);
          if (column < columns) use(unit, first_row + column, lane / 4 + (e >> 1) * 8, n, e);
        }
      }
    };
    if constexpr (kPaired) {
      each_result(0, [&](int unit, int column, int row, int n, int e) {
        work.store_pair(unit, column, row, acc[0][n][e], acc[1][n][e]);
      });
    } else {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        each_result(r, [&](int unit, int column, int row, int n, int e) {
          work.store(unit, 0, column, row, acc[r][n][e]);
        });
      }
    }
  }

  __device__ __forceinline__ const std::uint8_t* tile(int r) const {
    if constexpr (kPaired) return work.tile(min(own_unit, end_unit - 1), r);
    return work.tile(min(own_unit + r, end_unit - 1), 0);
  }

  /// All groups in order, slices joined as they end.
  __device__ __forceinline__ void multiply_all(const std::uint8_t* const (&tiles)[kRowTiles],
                                               Record<kBits> (&next)[kRowTiles], Values& acc) const {
    const int slices = numerics::slice_count(p.layout.in);
    Waiting waiting;
    int slice = 0, end = numerics::slice_begin(1, slices, groups);
#pragma unroll 1
    for (int first = 0, s = 0; first < groups; first += kSpan, ++s) {
      copy_wait<kStages - 2>();
      __syncthreads();
      copy_stage(s + kStages - 1);
      const uint4* stage = ring + s % kStages * kStageVectors;
      const auto* sides = reinterpret_cast<const float2*>(stage + kSpan * kGroupVectors);
#pragma unroll
      for (int j = 0; j < kSpan; ++j) {
        const int g = first + j;
        if (g >= groups) break;
        if (g == end) {
          end_slice(slice, waiting, acc);
          ++slice;
          end = numerics::slice_begin(slice + 1, slices, groups);
          each([&](int r, int n, int e) { acc[r][n][e] = 0; });
        }
        Record<kBits> now[kRowTiles];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) now[r] = next[r];
        load(next, tiles, g + 1);
        add_records(now, stage + j * kGroupVectors + own_column * 4, sides + j * kColumns + own_column, acc);
      }
    }
    if (slices > 1) end_slice(slices - 1, waiting, acc);
  }

  __device__ void run() {
    if constexpr (Work::kGathered) {  // the list of work is the predecessor's
      wait_for_predecessor();
      let_successor_start();
      if (first_unit >= work.units()) return;
      columns = work.columns(first_unit);
    }
    const std::uint8_t* const tiles[kRowTiles] = {tile(0), tile(1)};
    Record<kBits> next[kRowTiles];
    load(next, tiles, 0);
    aim();
    if constexpr (!Work::kGathered) {
      wait_for_predecessor();
      let_successor_start();
    }
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) copy_stage(s);
    Values acc = {};
    multiply_all(tiles, next, acc);
    store(acc);
  }
};

template <int kBits, int kColumnWarps, bool kPaired, class Work>
__global__ void __launch_bounds__(256, 1)
    affine_tile_kernel(const __grid_constant__ Work work, const __grid_constant__ AffineTileLaunch p) {
  extern __shared__ __align__(16) uint4 affine_ring[];
  AffineTileKernel<kBits, kColumnWarps, kPaired, Work>(work, p, affine_ring).run();
}

}  // namespace mererun::cuda
