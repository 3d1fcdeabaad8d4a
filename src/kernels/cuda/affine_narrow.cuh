#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/device.cuh"

// The quantised linear for few activation rows and the common layout: groups of 64, narrow sides.
//
// The eight columns of a matrix instruction are both planes of four activation rows, a quad: column 2t holds
// the high plane of row t, column 2t + 1 its low one. So one instruction does what two would with a plane
// each, and a lane gets both sums of a result and scales half as many of them.
//
// A launch of a few microseconds has no time for divisions before its first load: whatever is the same for
// all blocks is computed on the host.

namespace mererun::cuda {

/// What a narrow kernel is told beside its work.
struct NarrowLaunch {
  ActivationCodes x;          // in rows
  int rows = 0;               // of x; at most kColumns where staged
  int groups = 0;             // of a row
  int slice_shift = 0;        // log2 of the slices of a row
  int split_shift = 0;        // log2 of the blocks that share a unit
  int side_stride = 0;        // entries between staged sides of rows: free of bank conflicts
  int join_floats = 0;        // of a warp and tile: columns * kJoinPitch
  float* partials = nullptr;  // split > 1: [unit][split][tile][columns * 16]
  int* tickets = nullptr;     // split > 1: [unit], zero before and after
};

/// Keeps a value in a register where the compiler would rather compute it again at every use.
__device__ __forceinline__ void pin(int& value) { asm volatile("" : "+r"(value)); }

/// Work of a launch: units of kTiles row tiles that a team of warps does side by side. A type with
///   kTiles, kPaired                      kPaired: the two are gate and up
///   kGathered                            activations are read by index
///   int units()
///   const uint8_t* tile(u, r)            records of row tile r of unit u
///   int columns(u), std::int64_t row(u, c)   gathered: columns of a unit and the row of x of each
///   void store(u, r, column, row, value) or, for pairs, store_pair(u, column, row, gate, up)
///
/// kCached: codes are read where they lie; else from shared memory, all rows where gathered.
template <int kQuads, int kBits, int kWarps, int kStages, bool kCached, class Work>
struct NarrowKernel {
  static_assert(kWarps % numerics::kLinearSlices == 0);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kTiles = Work::kTiles;
  static constexpr int kColumns = 4 * kQuads;
  static constexpr int kResults = kColumns * kTileRows;  // of a row tile
  static constexpr int kVectors = 8;                     // 16-byte vectors of a row's group: [plane][quarter]
  // A chunk is what a warp waits for at a time: two records, two groups of a tile or one of two tiles.
  static constexpr int kChunkGroups = 2 / kTiles;
  static constexpr int kRecordVectors = Record<kBits>::kBytes / 16;
  static constexpr int kChunkVectors = 2 * kRecordVectors;
  static constexpr int kRingVectors = kStages * kChunkVectors;  // of a warp

  /// Shared memory: rings, sums that are joined, and `staged` bytes of activations.
  static std::int64_t shared_bytes(int join_floats, std::int64_t staged) {
    return 16 * kWarps * kRingVectors + 4 * joins_floats(join_floats) + 128 + staged;
  }
  static MERERUN_HD int joins_floats(int join_floats) { return kTiles * kWarps * join_floats; }

  const Work& work;
  const NarrowLaunch& p;
  int lane, warp, team, member, members, part;
  int groups_first, groups_held, group_begin, groups;  // of the block, and of this warp's slice
  int first_unit, unit_stride;

  uint4* ring;   // of this warp: [kStages][kChunkVectors]
  float* joins;  // [kTiles][warps][join_floats]
  int* flags;
  uint4* staged_codes;   // [row][group][plane][quarter]
  float2* staged_sides;  // [row][side_stride]

  __device__ NarrowKernel(const Work& w, const NarrowLaunch& launch, std::uint8_t* shared)
      : work(w), p(launch) {
    lane = static_cast<int>(threadIdx.x & 31);
    warp = static_cast<int>(threadIdx.x / 32);
    const int member_shift = p.slice_shift - p.split_shift;
    members = 1 << member_shift;
    team = warp >> member_shift;
    member = warp & (members - 1);
    const auto block = static_cast<int>(blockIdx.x);
    const int blocks = static_cast<int>(gridDim.x) >> p.split_shift;
    part = block & ((1 << p.split_shift) - 1);
    first_unit = (block >> p.split_shift) + team * blocks;
    unit_stride = blocks * (kWarps >> member_shift);
    const auto slice_begin = [&](int j) {
      return j * p.groups >> p.slice_shift;
    };  // as numerics::slice_begin
    const int slice = (part << member_shift) + member;
    groups_first = slice_begin(part << member_shift);
    groups_held = slice_begin((part + 1) << member_shift) - groups_first;
    group_begin = slice_begin(slice);
    groups = slice_begin(slice + 1) - group_begin;
    pin(unit_stride);
    pin(group_begin);
    pin(groups);
    ring = reinterpret_cast<uint4*>(shared) + warp * kRingVectors;
    joins = reinterpret_cast<float*>(shared + 16 * kWarps * kRingVectors);
    flags = reinterpret_cast<int*>(joins + joins_floats(p.join_floats));
    staged_codes = reinterpret_cast<uint4*>(flags + 32);
    staged_sides = reinterpret_cast<float2*>(staged_codes + p.rows * groups_held * kVectors);
  }

  __device__ __forceinline__ void team_barrier() const {
    if (members == 1) {
      __syncwarp();
    } else {
      barrier(1 + team, 32 * members);
    }
  }

  /// Copies `count` values `stride` apart, several of them under way at a time. Through registers: a thread's
  /// asynchronous copies end in order, behind all the weights it has asked for.
  template <typename Value>
  static __device__ __forceinline__ void copy(Value* to, const Value* from, int first, int count,
                                              int stride) {
    constexpr int kBatch = 4;
    for (int i = first; i < count; i += kBatch * stride) {
      Value held[kBatch];
#pragma unroll
      for (int m = 0; m < kBatch; ++m) {
        if (i + m * stride < count) held[m] = from[i + m * stride];
      }
#pragma unroll
      for (int m = 0; m < kBatch; ++m) {
        if (i + m * stride < count) to[i + m * stride] = held[m];
      }
    }
  }
  /// Activations of this block's groups into shared memory: all rows.
  __device__ __forceinline__ void copy_input() const {
    const auto thread = static_cast<int>(threadIdx.x);
    const int vectors = groups_held * kVectors, row_vectors = p.groups * kVectors;
    const uint4* codes = p.x.codes + groups_first * kVectors;
    if (vectors == row_vectors) {
      copy(staged_codes, codes, thread, p.rows * vectors, kThreads);
    } else {
      for (int t = 0; t < p.rows; ++t)
        copy(staged_codes + t * vectors, codes + static_cast<std::int64_t>(t) * row_vectors, thread, vectors,
             kThreads);
    }
    for (int t = warp; t < p.rows; t += kWarps)
      copy(staged_sides + t * p.side_stride, p.x.row_sides(t) + groups_first, lane, groups_held, 32);
  }

  /// Where a lane finds its activations, from the next chunk's on: columns past the last repeat it, and
  /// nothing stores their results.
  struct Columns {
    const uint4* codes[kQuads];
    const float2* sides[kQuads];
  };
  __device__ __forceinline__ void aim_columns(Columns& at, int unit) const {
    int last = p.rows - 1;
    if constexpr (Work::kGathered) last = work.columns(unit) - 1;
    const auto row = [&](int column) {
      const int own = column < last ? column : last;
      if constexpr (Work::kGathered) return static_cast<int>(work.row(unit, own));
      return own;
    };
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
      const int codes_row = row(4 * n + lane / 8), sides_row = row(4 * n + lane % 4);
      if constexpr (kCached) {
        at.codes[n] = p.x.row_codes(codes_row) + group_begin * kVectors + lane % 8;
        at.sides[n] = p.x.row_sides(sides_row) + group_begin;
      } else {
        const int begin = group_begin - groups_first;
        at.codes[n] = staged_codes + (codes_row * groups_held + begin) * kVectors + lane % 8;
        at.sides[n] = staged_sides + sides_row * p.side_stride + begin;
      }
    }
  }
  static __device__ __forceinline__ void move(Columns& at, int groups) {
#pragma unroll
    for (int n = 0; n < kQuads; ++n) {
      at.codes[n] += groups * kVectors;
      at.sides[n] += groups;
    }
  }

  using Sums = float[kTiles][kQuads][2];

  /// A lane's share of a record in the ring.
  __device__ __forceinline__ Record<kBits> read_record(const uint4* from) const {
    Record<kBits> record;
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i) record.codes[i] = from[32 * i + lane];
    record.sides = reinterpret_cast<const uint2*>(from + 8 * kBits)[lane / 4];
    return record;
  }

  /// kGroups groups of all tiles, in order: acc = fma(s * d, float(I), acc); acc = fma(b, D, acc).
  template <int kGroups>
  __device__ __forceinline__ void add_records(const uint4* from, const Columns& at, Sums& acc) const {
    int sums[kGroups][kTiles][kQuads][4];
    Record<kBits> record[kGroups][kTiles];
    uint4 x[kGroups][kQuads];
    start_sums(&sums[0][0][0][0], kGroups * kTiles * kQuads * 4);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < kTiles; ++r) record[g][r] = read_record(from + (g * kTiles + r) * kRecordVectors);
#pragma unroll
      for (int n = 0; n < kQuads; ++n) x[g][n] = at.codes[n][g * kVectors];
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          std::uint32_t a[4];
          record[g][r].operand(a, s);
#pragma unroll
          for (int n = 0; n < kQuads; ++n) {
            const std::uint32_t b0 = s == 0 ? x[g][n].x : x[g][n].z, b1 = s == 0 ? x[g][n].y : x[g][n].w;
            multiply<kBits>(sums[g][r][n], a, b0, b1, sums[g][r][n]);
          }
        }
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kQuads; ++n) {
        const float2 d = at.sides[n][g];
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          const RowSides w = narrow_sides(record[g][r].sides);
          const int(&sum)[4] = sums[g][r][n];
          float(&to)[2] = acc[r][n];
          to[0] = __fmaf_rn(__fmul_rn(w.s0, d.x), joined_planes(sum[0], sum[1]), to[0]);
          to[0] = __fmaf_rn(w.b0, d.y, to[0]);
          to[1] = __fmaf_rn(__fmul_rn(w.s1, d.x), joined_planes(sum[2], sum[3]), to[1]);
          to[1] = __fmaf_rn(w.b1, d.y, to[1]);
        }
      }
    }
  }

  /// Calls use(result) for this thread's share of a unit's results, result = column * 16 + row.
  template <typename Use>
  __device__ __forceinline__ void for_own_results(int unit, Use use) const {
    int count = p.rows;
    if constexpr (Work::kGathered) count = work.columns(unit);
#pragma unroll 1
    for (int result = member * 32 + lane; result < count * kTileRows; result += members * 32) use(result);
  }
  __device__ __forceinline__ void store(int unit, int result, const float (&values)[kTiles]) const {
    const int row = result % kTileRows;
    const int column = result / kTileRows;
    if constexpr (Work::kPaired) {
      work.store_pair(unit, column, row, values[0], values[1]);
    } else {
#pragma unroll
      for (int r = 0; r < kTiles; ++r) work.store(unit, r, column, row, values[r]);
    }
  }

  /// Joins the team's slices of a unit and stores, where rows are split in the block that comes last.
  __device__ __forceinline__ void finish(int unit, const Sums& acc) const {
    team_barrier();  // nobody reads the unit before any more
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      float* own = joins + (r * kWarps + warp) * p.join_floats + lane / 4;
#pragma unroll
      for (int n = 0; n < kQuads; ++n) {
        const int column = 4 * n + lane % 4;
        if (column * kJoinPitch >= p.join_floats) continue;
        own[column * kJoinPitch] = acc[r][n][0];
        own[column * kJoinPitch + 8] = acc[r][n][1];
      }
    }
    team_barrier();
    const float* first = joins + team * members * p.join_floats;
    const auto joined = [&](int r, int result) {
      const float* at =
          first + r * kWarps * p.join_floats + result / kTileRows * kJoinPitch + result % kTileRows;
      return join_slices(members, [&](int s) { return at[s * p.join_floats]; });
    };
    if (p.split_shift == 0) {
      for_own_results(unit, [&](int result) {
        float values[kTiles];
#pragma unroll
        for (int r = 0; r < kTiles; ++r) values[r] = joined(r, result);
        store(unit, result, values);
      });
      return;
    }
    const int split = 1 << p.split_shift;
    const std::int64_t at = unit;  // where the parts meet
    float* partials = p.partials + at * split * kTiles * kResults;
    for_own_results(unit, [&](int result) {
#pragma unroll
      for (int r = 0; r < kTiles; ++r) partials[(part * kTiles + r) * kResults + result] = joined(r, result);
    });
    __threadfence();
    team_barrier();
    if (member == 0 && lane == 0) {
      const bool last = atomicAdd(p.tickets + at, 1) == split - 1;
      if (last) p.tickets[at] = 0;
      flags[team] = last;
    }
    team_barrier();
    if (flags[team] == 0) return;
    __threadfence();
    for_own_results(unit, [&](int result) {
      float values[kTiles];
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        values[r] = join_slices(
            split, [&](int s) { return __ldcg(partials + (s * kTiles + r) * kResults + result); });
      }
      store(unit, result, values);
    });
  }

  // Records come in chunks through a ring of the warp's own. The copies of a chunk are a group of their own,
  // so that a warp waits for the oldest one while all later ones are under way. Before it waits for its
  // predecessor a warp asks for as much as the ring holds.

  /// The next chunk of the team's units that is to be fetched.
  struct Fetch {
    const std::uint8_t* from[kTiles];
    int unit, left;  // groups left of the unit
  };
  __device__ __forceinline__ void aim(Fetch& f) const {
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
      f.from[r] =
          work.tile(f.unit, r) + static_cast<std::int64_t>(group_begin) * Record<kBits>::kBytes + lane * 16;
    f.left = groups;
  }
  /// Starts the copies of a chunk, none behind the last one: the group counts all the same.
  __device__ __forceinline__ void fetch(uint4* slot, Fetch& f, int units) const {
    if (f.unit < units) {
      constexpr int kWhole = kChunkGroups * kRecordVectors;  // vectors of a tile
      const int vectors = f.left >= kChunkGroups ? kWhole : kRecordVectors;
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
#pragma unroll
        for (int i = 0; i < (kWhole + 31) / 32; ++i) {
          if (lane + 32 * i < vectors) copy_async16(slot + r * kWhole + 32 * i + lane, f.from[r] + 512 * i);
        }
        f.from[r] += 16 * kWhole;
      }
      f.left -= kChunkGroups;
      if (f.left <= 0) {
        f.unit += unit_stride;
        if (f.unit < units) aim(f);
      }
    }
    copy_commit();
  }

  __device__ void run() {
    if constexpr (Work::kGathered) {  // the list of work is the predecessor's
      wait_for_predecessor();
      let_successor_start();
    }
    int units = work.units();
    pin(units);
    Fetch ahead{};
    ahead.unit = first_unit;
    if (first_unit < units) aim(ahead);
    uint4* const ring_end = ring + kRingVectors;
    uint4* free = ring_end - kChunkVectors;
#pragma unroll 1
    for (uint4* slot = ring; slot != free; slot += kChunkVectors) fetch(slot, ahead, units);
    if constexpr (!Work::kGathered) {
      wait_for_predecessor();
      let_successor_start();
    }
    if constexpr (!kCached) {
      copy_input();
      __syncthreads();
    }
    const uint4* chunk = ring;
    int unit = first_unit, left = groups;
    Sums acc = {};
    Columns at;
    if (unit < units) aim_columns(at, unit);
#pragma unroll 1
    while (unit < units) {
      copy_wait<kStages - 2>();
      __syncwarp();  // the chunk is there for all lanes, and none reads the one before any more
      fetch(free, ahead, units);
      if (kChunkGroups == 1 || left > 1) {
        add_records<kChunkGroups>(chunk, at, acc);
      } else {
        add_records<1>(chunk, at, acc);
      }
      free = free + kChunkVectors == ring_end ? ring : free + kChunkVectors;
      chunk = chunk + kChunkVectors == ring_end ? ring : chunk + kChunkVectors;
      move(at, kChunkGroups);
      left -= kChunkGroups;
      if (left > 0) continue;
      move(at, left - groups);
      left = groups;
      finish(unit, acc);
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
#pragma unroll
        for (int n = 0; n < kQuads; ++n) acc[r][n][0] = acc[r][n][1] = 0.0f;
      }
      unit += unit_stride;
      if constexpr (Work::kGathered) {
        if (unit < units) aim_columns(at, unit);
      }
    }
  }
};

template <int kQuads, int kBits, int kWarps, int kStages, bool kCached, class Work>
__global__ void __launch_bounds__(32 * kWarps, 1)
    narrow_kernel(const __grid_constant__ Work work, const __grid_constant__ NarrowLaunch p) {
  extern __shared__ __align__(16) std::uint8_t narrow_shared[];
  NarrowKernel<kQuads, kBits, kWarps, kStages, kCached, Work>(work, p, narrow_shared).run();
}

}  // namespace mererun::cuda
