#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"

namespace mererun::cuda {

/// What the warpgroup kernel is told beside its work.
struct AffineWarpgroupLaunch {
  AffineView layout;  // common; `records` and `out` are the work's
  ActivationCodes x;  // planes
  int parts = 1;      // blocks that read the same records; of lists: blocks of one entry
};

/// The quantised linear over many activation rows with matrix instructions of a warpgroup: codes in plane
/// order go from shared memory straight into them.
///
/// A warpgroup computes 64 weight rows by 64 activation rows (kRowTiles 1) or 128 by 32 (kRowTiles 2; paired:
/// gate and up), in two parts: while one is multiplied, the other is scaled and added. A warp owns its
/// results from the first group to the last: it goes through the slices one after the other and joins them on
/// the way by the contract's tree, so the bits are those of AffineKernel, where every slice has a warp of its
/// own. Results that wait for their partner do so in shared memory. Codes pass through a ring, filled by the
/// bulk copy engine; records flow from memory to registers one stage ahead.
///
/// `Work` is AffineKernel's; that of lists has p.layout.tiles() units an entry, and block e of codes is entry
/// e.
template <int kBits, int kRowTiles, int kWarpgroups, bool kPaired, class Work>
struct AffineWarpgroupKernel {
  static constexpr int kChunks = 2 / kRowTiles;  // blocks of 32 activation rows
  static constexpr int kColumns = kBlockColumns * kChunks;
  static constexpr int kThreads = 128 * kWarpgroups;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kUnits = 4 * kWarpgroups * (kPaired ? 1 : kRowTiles);  // of a block
  static constexpr int kSpan = 2;                                             // groups a stage of the ring
  static constexpr int kStages = 4;                                           // two filled ahead
  static constexpr int kHalfBytes = kBlockColumns * 16;                       // 16 bytes of every row
  static constexpr int kStepBytes = 4 * kHalfBytes;                           // two halves of each plane
  static constexpr int kGroupBytes = 2 * kStepBytes;
  static constexpr int kCodeBytes = kSpan * kGroupBytes, kSideBytes = kSpan * kBlockColumns * 8;
  static constexpr int kChunkBytes = kCodeBytes + kSideBytes;  // of a stage
  static constexpr int kStageBytes = kChunks * kChunkBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kResults = 32;  // of a thread
  static constexpr int kBarrierBytes = 2 * kStages * 8;
  /// Rows of one slice keep nothing waiting.
  static constexpr int shared_bytes(int in) {
    return kRingBytes + kBarrierBytes + (numerics::slice_count(in) > 1 ? 3 * kResults * kThreads * 4 : 0);
  }

  const Work& work;
  const AffineWarpgroupLaunch& p;
  std::uint8_t* ring;
  BulkBarrier *full, *empty;  // [kStages]
  float4* waiting;            // [3][kResults / 4][kThreads]
  int lane, warp, groups;
  int first_unit, end_unit, own_unit;  // of the block; of the warp
  int first_block;                     // of codes

  __device__ AffineWarpgroupKernel(const Work& w, const AffineWarpgroupLaunch& launch, std::uint8_t* shared)
      : work(w), p(launch), ring(shared) {
    full = reinterpret_cast<BulkBarrier*>(shared + kRingBytes);
    empty = full + kStages;
    waiting = reinterpret_cast<float4*>(shared + kRingBytes + kBarrierBytes) + threadIdx.x;
    lane = static_cast<int>(threadIdx.x & 31);
    groups = p.layout.groups();
    warp = static_cast<int>(threadIdx.x / 32);
    const int whole = static_cast<int>(blockIdx.x) / p.parts;
    const int part = static_cast<int>(blockIdx.x) % p.parts;
    if constexpr (Work::kGathered) {
      first_unit = whole * p.layout.tiles() + part * kUnits;
      end_unit = (whole + 1) * p.layout.tiles();
      first_block = whole;
    } else {
      first_unit = whole * kUnits;
      end_unit = work.units();
      first_block = part * kChunks;
    }
    own_unit = first_unit + warp * (kPaired ? 1 : kRowTiles);
  }

  /// By one thread: starts filling stage `s`, if there is one. A block of codes past the last is read as the
  /// last.
  __device__ __forceinline__ void fill(int s) const {
    if (s * kSpan >= groups) return;
    BulkBarrier& barrier = full[s % kStages];
    barrier.arrive_for(kStageBytes);
    const int last = (p.x.rows - 1) / kBlockColumns;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int block = first_block + c < last ? first_block + c : last;
      std::uint8_t* to = ring + s % kStages * kStageBytes + c * kChunkBytes;
      const std::int64_t group = static_cast<std::int64_t>(block) * groups + s * kSpan;
      barrier.copy(to, reinterpret_cast<const std::uint8_t*>(p.x.codes) + group * kGroupBytes, kCodeBytes);
      barrier.copy(to + kCodeBytes, p.x.sides + group * kBlockColumns, kSideBytes);
    }
  }

  using Records = Record<kBits>[kRowTiles];
  __device__ __forceinline__ void load(Records& records, const std::uint8_t* const (&tiles)[kRowTiles],
                                       int g) const {
    if (g >= groups) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      records[r].load_shared(tiles[r] + static_cast<std::int64_t>(g) * Record<kBits>::kBytes, lane);
    }
  }

  /// Sums of one part: both planes.
  struct Sums {
    int high[16], low[16];
  };
  /// First operands and sides of a group.
  struct Operands {
    std::uint32_t a[kRowTiles][2][4];
    uint2 sides[kRowTiles];
  };
  using Values = float[16];

  __device__ __forceinline__ static constexpr int row_tile(int part) { return kRowTiles == 2 ? part : 0; }
  __device__ __forceinline__ static constexpr int chunk(int part) { return kRowTiles == 2 ? 0 : part; }

  /// Starts multiplying part `kPart` of a group whose codes, those of the first chunk, are described by
  /// `codes`.
  template <int kPart>
  __device__ __forceinline__ static void start(Sums& sums, const Operands& w, std::uint64_t codes) {
    constexpr int r = row_tile(kPart);
    constexpr std::uint64_t kPlane = 2 * kHalfBytes >> 4, kStep = kStepBytes >> 4;
    const std::uint64_t at = codes + chunk(kPart) * (kChunkBytes >> 4);
    warpgroup_fence();
    multiply_async<kBits != 4, false>(sums.high, w.a[r][0], at);
    multiply_async<kBits != 4, false>(sums.low, w.a[r][0], at + kPlane);
    multiply_async<kBits != 4, true>(sums.high, w.a[r][1], at + kStep);
    multiply_async<kBits != 4, true>(sums.low, w.a[r][1], at + kStep + kPlane);
    warpgroup_commit();
  }

  /// Waits for a part and adds it to its values; kPending: groups of instructions started after it.
  template <int kPart, int kPending>
  __device__ __forceinline__ void add(Values& acc, Sums& sums, const Operands& w,
                                      const std::uint8_t* sides) const {
    warpgroup_wait<kPending>(sums.high);
    warpgroup_wait<kPending>(sums.low);
    const RowSides own = narrow_sides(w.sides[row_tile(kPart)]);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float4 d =
          *reinterpret_cast<const float4*>(sides + chunk(kPart) * kChunkBytes + 8 * (8 * n + 2 * (lane % 4)));
      const auto term = [&](int i, float s, float b, float divisor, float sum) {
        const float dot = __int2float_rn(sums.high[i] * 256 + sums.low[i]);
        acc[i] = __fmaf_rn(b, sum, __fmaf_rn(__fmul_rn(s, divisor), dot, acc[i]));
      };
      term(4 * n, own.s0, own.b0, d.x, d.y);
      term(4 * n + 1, own.s0, own.b0, d.z, d.w);
      term(4 * n + 2, own.s1, own.b1, d.x, d.y);
      term(4 * n + 3, own.s1, own.b1, d.z, d.w);
    }
  }

  /// Ends slice j of 8 of both parts: values join what waits for them, and wait themselves unless they are
  /// the last.
  __device__ __forceinline__ void end_slice(int j, Values (&acc)[2]) const {
#pragma unroll 1
    for (int level = 0; level < 3; ++level) {
      float4* own = waiting + level * (kResults / 4) * kThreads;
      const bool joins = (j >> level & 1) != 0;
#pragma unroll
      for (int i = 0; i < kResults / 4; ++i) {
        float* value = &acc[i / 4][i % 4 * 4];
        if (joins) {
          const float4 left = own[i * kThreads];
          value[0] = left.x + value[0];
          value[1] = left.y + value[1];
          value[2] = left.z + value[2];
          value[3] = left.w + value[3];
        } else {
          own[i * kThreads] = make_float4(value[0], value[1], value[2], value[3]);
          value[0] = value[1] = value[2] = value[3] = 0;
        }
      }
      if (!joins) return;
    }
  }

  __device__ __forceinline__ void store(const Values (&acc)[2]) const {
    int columns = 0, first_row = 0;
    if constexpr (Work::kGathered) {
      columns = work.columns(first_unit);
    } else {
      first_row = first_block * kBlockColumns;
      columns = p.x.rows - first_row;
    }
    const auto each_result = [&](int part, auto&& use) {
      const int unit = kPaired ? own_unit : own_unit + row_tile(part);
      if (unit >= end_unit) return;
      const auto rows = work.rows_of(unit);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int column = kBlockColumns * chunk(part) + i / 4 * 8 + 2 * (lane % 4) + (i & 1);
        if (column < columns) use(rows, first_row + column, lane / 4 + (i >> 1 & 1) * 8, i);
      }
    };
    if constexpr (kPaired) {
      each_result(0, [&](const auto& rows, int column, int row, int i) {
        rows.store_pair(column, row, acc[0][i], acc[1][i]);
      });
    } else {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        each_result(part, [&](const auto& rows, int column, int row, int i) {
          rows.store(column, row, acc[part][i]);
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
                                               Records (&next)[kSpan], Values (&acc)[2]) const {
    const int slices = numerics::slice_count(p.layout.in);
    const auto end_of = [&](int slice) {
      return slices == 1 ? groups + 1 : numerics::slice_begin(slice + 1, slices, groups);
    };
    int slice = 0, end = end_of(0);
#pragma unroll 1
    for (int s = 0; s * kSpan < groups; ++s) {
      const int first = s * kSpan, slot = s % kStages;
      if (lane == 0 && warp == s % kWarps && s >= 2) {  // by turns: it takes a warp a fifth of a stage
        empty[(s - 2) % kStages].wait((s - 2) / kStages & 1);
        fill(s + 2);
      }
      __syncwarp();
      const auto take = [&](Operands& to, int j) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          next[j][r].operand(to.a[r][0], 0);
          next[j][r].operand(to.a[r][1], 1);
          to.sides[r] = next[j][r].sides;
        }
        load(next[j], tiles, first + j + kSpan);
      };
      const std::uint8_t* stage = ring + slot * kStageBytes;
      const std::uint64_t codes = describe_rows(stage, kHalfBytes);
      const std::uint8_t* sides = stage + kCodeBytes;
      Operands w[kSpan];
      Sums even, odd;
      take(w[0], 0);
      full[slot].wait(s / kStages & 1);
      start<0>(even, w[0], codes);
      start<1>(odd, w[0], codes);
      add<0, 1>(acc[0], even, w[0], sides);
      take(w[1], 1);
      start<0>(even, w[1], codes + (kGroupBytes >> 4));
      add<1, 1>(acc[1], odd, w[0], sides);
      start<1>(odd, w[1], codes + (kGroupBytes >> 4));
      if (first + 1 == end) {
        end_slice(slice, acc);
        end = end_of(++slice);
      }
      add<0, 1>(acc[0], even, w[1], sides + kBlockColumns * 8);
      add<1, 0>(acc[1], odd, w[1], sides + kBlockColumns * 8);
      if (first + 2 == end) {
        end_slice(slice, acc);
        end = end_of(++slice);
      }
      empty[slot].arrive();
    }
  }

  __device__ void run() {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int s = 0; s < kStages; ++s) {
        full[s].start(1);
        empty[s].start(kThreads);
      }
      publish_barriers();
    }
    __syncthreads();
    if constexpr (Work::kGathered) {  // the list of work is the predecessor's
      wait_for_predecessor();
      let_successor_start();
      if (first_unit >= work.units()) return;
    }
    const std::uint8_t* tiles[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) tiles[r] = tile(r);
    Records next[kSpan];
#pragma unroll
    for (int j = 0; j < kSpan; ++j) load(next[j], tiles, j);
    if constexpr (!Work::kGathered) {
      wait_for_predecessor();
      let_successor_start();
    }
    if (threadIdx.x == 0) {
#pragma unroll
      for (int s = 0; s < kStages; ++s) fill(s);
    }
    Values acc[2] = {};
    multiply_all(tiles, next, acc);
    store(acc);
  }
};

template <int kBits, int kRowTiles, int kWarpgroups, bool kPaired, class Work>
__global__ void __launch_bounds__(128 * kWarpgroups, 1)
    affine_warpgroup_kernel(const __grid_constant__ Work work,
                            const __grid_constant__ AffineWarpgroupLaunch p) {
  extern __shared__ __align__(128) std::uint8_t affine_warpgroup_memory[];
  AffineWarpgroupKernel<kBits, kRowTiles, kWarpgroups, kPaired, Work>(work, p, affine_warpgroup_memory).run();
}

}  // namespace mererun::cuda
