#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/device.cuh"

namespace mererun::cuda {

/// What every affine kernel is told beside its work.
struct AffineLaunch {
  AffineView layout;  // of all weights of the launch; `records` and `out` are the work's
  ActivationCodes x;
  // Staged: rows of x from first_row on, in pieces of kColumns. Blocks of all pieces that read the same
  // weights are neighbours, so that the second-level cache serves all but one of them.
  int first_row = 0, rows = 0, pieces = 1;
  int slices = 1, split = 1, groups_per_block = 0;
  bool copies_input = false;  // gathered: all of x is copied to shared memory; else read through the cache
  float* partials = nullptr;  // split > 1: [piece][unit][split][row tile][columns * 16]
  int* tickets = nullptr;     // split > 1: [piece][unit], zero before and after
};

/// Work of a launch: units of a row tile. A type with
///   kGathered                            activations are read by index, all of x staged or none
///   int units()
///   const uint8_t* tile(u, 0)            records of unit u
///   int columns(u), std::int64_t row(u, c)   gathered: columns of a unit and the row of x of each
///   void store(u, 0, column, row, value)
///
/// kCommon: groups of 64 with narrow sides, records flow through registers. Else any layout, read as it
/// comes.
template <int kColumnTiles, int kBits, bool kCommon, class Work>
struct AffineKernel {
  static constexpr int kWarps = affine_warps(kColumnTiles);
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kHeld = affine_held(kColumnTiles, kBits);
  static constexpr int kColumns = 8 * kColumnTiles;
  static constexpr int kJoinFloats = kColumns * kJoinPitch;
  static constexpr int kResults = kColumns * kTileRows;  // of a row tile
  static constexpr int kVectors = kColumns * 4;          // 16-byte vectors of a staged step

  const Work& work;
  const AffineLaunch& p;
  int lane, warp, team, member, members, part;
  int groups_first, group_begin, group_end;
  int first_unit, unit_stride;
  int piece, first_row, columns;  // of this block: rows of x it works on

  uint4* staged_codes;
  float2* staged_sides;
  float* joins;  // [2][warps][kJoinFloats]: one is written while the other is still read
  int* flags;
  const uint4* gathered_codes;  // all of x, in shared or global memory
  const float2* gathered_sides;

  __device__ AffineKernel(const Work& w, const AffineLaunch& launch, std::uint8_t* shared)
      : work(w), p(launch) {
    lane = static_cast<int>(threadIdx.x & 31);
    warp = static_cast<int>(threadIdx.x / 32);
    members = p.slices / p.split;
    team = warp / members;
    member = warp % members;
    piece = static_cast<int>(blockIdx.x) % p.pieces;
    const int block = static_cast<int>(blockIdx.x) / p.pieces;
    first_row = p.first_row + piece * kColumns;
    columns = p.rows - piece * kColumns < kColumns ? p.rows - piece * kColumns : kColumns;
    part = block % p.split;
    const int groups = p.layout.groups();
    const int slice = part * members + member;
    groups_first = numerics::slice_begin(part * members, p.slices, groups);
    group_begin = numerics::slice_begin(slice, p.slices, groups);
    group_end = numerics::slice_begin(slice + 1, p.slices, groups);
    joins = reinterpret_cast<float*>(shared);
    flags = reinterpret_cast<int*>(joins + 2 * kWarps * kJoinFloats);
    staged_codes = reinterpret_cast<uint4*>(flags + 16);
    staged_sides = reinterpret_cast<float2*>(staged_codes + p.groups_per_block * p.layout.steps() * kVectors);
    const int blocks = static_cast<int>(gridDim.x) / p.pieces / p.split;
    gathered_codes = p.x.codes;
    gathered_sides = p.x.sides;
    first_unit = block / p.split + team * blocks;
    unit_stride = blocks * (kWarps / members);
  }

  __device__ __forceinline__ void team_barrier() const {
    if (members == 1) {
      __syncwarp();
    } else {
      barrier(1 + team, 32 * members);
    }
  }

  /// Activations of this block's groups into shared memory; columns past the last stay as they are, and so do
  /// the results that come of them: nothing stores those.
  __device__ void stage() {
    const int steps = p.layout.steps();
    const int block = first_row / kBlockColumns;
    const int first_column = first_row % kBlockColumns;
    const int wide = p.x.columns_of(block);
    const int groups =
        numerics::slice_begin((part + 1) * members, p.slices, p.layout.groups()) - groups_first;
    const uint4* codes = p.x.codes + p.x.codes_offset(block) +
                         (static_cast<std::int64_t>(groups_first) * steps * wide + first_column) * 4;
    const int line = columns * 4;
    for (int i = static_cast<int>(threadIdx.x); i < groups * steps * line; i += kThreads) {
      const int step = i / line;
      const int at = i - step * line;
      copy_async16(staged_codes + step * kVectors + at,
                   codes + static_cast<std::int64_t>(step) * wide * 4 + at);
    }
    const int padded = (wide + 1) & ~1;
    const float2* sides =
        p.x.sides + p.x.sides_offset(block) + static_cast<std::int64_t>(groups_first) * padded + first_column;
    for (int i = static_cast<int>(threadIdx.x); i < groups * columns; i += kThreads) {
      const int g = i / columns;
      staged_sides[g * kColumns + i - g * columns] =
          sides[static_cast<std::int64_t>(g) * padded + i - g * columns];
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
  }

  /// All of x into shared memory, in the order it has.
  __device__ void copy_input() {
    const int codes = p.x.code_vectors();
    const int sides = p.x.side_vectors();
    auto* to = staged_codes;
    for (int i = static_cast<int>(threadIdx.x); i < codes; i += kThreads) copy_async16(to + i, p.x.codes + i);
    const auto* from = reinterpret_cast<const uint4*>(p.x.sides);
    for (int i = static_cast<int>(threadIdx.x); i < sides; i += kThreads)
      copy_async16(to + codes + i, from + i);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    gathered_codes = to;
    gathered_sides = reinterpret_cast<const float2*>(to + codes);
  }

  /// Where a lane finds the activations of a gathered unit: columns past the last repeat it.
  struct Columns {
    const uint4* codes[kColumnTiles];
    int code_stride[kColumnTiles];  // vectors between steps
    const float2* sides[kColumnTiles][2];
    int side_stride[kColumnTiles][2];  // entries between groups
  };

  __device__ __forceinline__ void aim_columns(Columns& at, int unit) const {
    if constexpr (Work::kGathered) {
      const int last = work.columns(unit) - 1;
      const auto aim = [&](int column, auto&& use) {
        const std::int64_t row = work.row(unit, column < last ? column : last);
        const int block = static_cast<int>(row / kBlockColumns);
        use(block, static_cast<int>(row % kBlockColumns), p.x.columns_of(block));
      };
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        aim(8 * n + lane / 4, [&](int block, int c, int wide) {
          at.codes[n] = gathered_codes + p.x.codes_offset(block) + c * 4 + lane % 4;
          at.code_stride[n] = wide * 4;
        });
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          aim(8 * n + 2 * (lane % 4) + j, [&](int block, int c, int wide) {
            at.sides[n][j] = gathered_sides + p.x.sides_offset(block) + c;
            at.side_stride[n][j] = (wide + 1) & ~1;
          });
        }
      }
    }
  }

  __device__ __forceinline__ uint4 read_activation(const Columns& at, int n, int step) const {
    if constexpr (Work::kGathered) {
      return *(at.codes[n] + static_cast<std::int64_t>(step) * at.code_stride[n]);
    } else {
      return staged_codes[(step - groups_first * (kCommon ? 2 : p.layout.steps())) * kVectors + 32 * n +
                          lane];
    }
  }

  __device__ __forceinline__ float4 read_activation_sides(const Columns& at, int n, int g) const {
    if constexpr (Work::kGathered) {
      const float2 a = *(at.sides[n][0] + static_cast<std::int64_t>(g) * at.side_stride[n][0]);
      const float2 b = *(at.sides[n][1] + static_cast<std::int64_t>(g) * at.side_stride[n][1]);
      return make_float4(a.x, a.y, b.x, b.y);
    } else {
      return *reinterpret_cast<const float4*>(staged_sides + (g - groups_first) * kColumns + 8 * n +
                                              2 * (lane % 4));
    }
  }

  /// Sums of a group's products by column tile and element; both planes of the activations.
  using Sums = int[kColumnTiles][4];

  /// One step of all row and column tiles.
  __device__ __forceinline__ void multiply_step(const std::uint32_t (&a)[4], const Columns& at, int step,
                                                Sums& high, Sums& low) const {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const uint4 x = read_activation(at, n, step);
      multiply<kBits>(high[n], a, x.x, x.y, high[n]);
      multiply<kBits>(low[n], a, x.z, x.w, low[n]);
    }
  }

  /// One common group of all row and column tiles. Steps outside, tiles inside: the products of a step depend
  /// on nothing of each other.
  __device__ __forceinline__ void add_record(const Record<kBits>& record, const Columns& at, int g,
                                             float (&acc)[kColumnTiles][4]) const {
    Sums high, low;
    start_sums(&high[0][0], kColumnTiles * 4);
    start_sums(&low[0][0], kColumnTiles * 4);
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      std::uint32_t a[4];
      record.operand(a, s);
      multiply_step(a, at, 2 * g + s, high, low);
    }
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const float4 d = read_activation_sides(at, n, g);
      add_group(acc[n], high[n], low[n], narrow_sides(record.sides), d);
    }
  }

  /// One group of any layout, read where it lies.
  __device__ __forceinline__ void add_any(const std::uint8_t* tile, const Columns& at, int g,
                                          float (&acc)[kColumnTiles][4]) const {
    const int steps = p.layout.steps();
    const std::int64_t offset = static_cast<std::int64_t>(g) * p.layout.record_bytes();
    Sums high, low;
    start_sums(&high[0][0], kColumnTiles * 4);
    start_sums(&low[0][0], kColumnTiles * 4);
    for (int s = 0; s < steps; ++s) {
      std::uint32_t a[4];
      const std::uint8_t* codes = tile + offset;
      if constexpr (kBits == 4) {
        const uint2 w = reinterpret_cast<const uint2*>(codes)[lane * steps + s];
        unpack(a, w.x, w.y);
      } else {
        const uint4 w = reinterpret_cast<const uint4*>(codes)[32 * s + lane];
        a[0] = w.x;
        a[1] = w.y;
        a[2] = w.z;
        a[3] = w.w;
      }
      multiply_step(a, at, g * steps + s, high, low);
    }
    const RowSides sides = read_sides(tile + offset + p.layout.code_bytes(), lane / 4, p.layout.wide_sides);
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
      add_group(acc[n], high[n], low[n], sides, read_activation_sides(at, n, g));
  }

  /// Calls use(result) for this thread's share of a unit's results, result = column * 16 + row.
  template <typename Use>
  __device__ __forceinline__ void for_own_results(Use use) const {
#pragma unroll 1
    for (int result = member * 32 + lane; result < kResults; result += members * 32) use(result);
  }

  /// Joins the team's slices of every result and calls use(result, value). Calls alternate between two
  /// buffers
  /// (`turn`), so one barrier a unit is enough: whoever writes a buffer again has passed the barrier that
  /// every reader of it reached afterwards.
  template <typename Use>
  __device__ __forceinline__ void join(const float (&acc)[kColumnTiles][4], int& turn, Use use) const {
    float* buffer = joins + turn * kWarps * kJoinFloats;
    turn = 1 - turn;
    float* own = buffer + warp * kJoinFloats;
    const float* first = buffer + team * members * kJoinFloats;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * n + 2 * (lane % 4) + (e & 1);
        own[column * kJoinPitch + lane / 4 + (e >> 1) * 8] = acc[n][e];
      }
    }
    team_barrier();
    for_own_results([&](int result) {
      const float* at = first + result / 16 * kJoinPitch + result % 16;
      use(result, join_slices(members, [&](int s) { return at[s * kJoinFloats]; }));
    });
  }

  __device__ __forceinline__ void store(int unit, int result, float value) const {
    int column = result / 16;
    if constexpr (!Work::kGathered) {
      if (column >= columns) return;
      column += first_row;
    }
    work.store(unit, 0, column, result % 16, value);
  }

  /// split > 1: where the parts of a unit meet.
  __device__ __forceinline__ std::int64_t meeting(int unit, int units) const {
    return static_cast<std::int64_t>(piece) * units + unit;
  }

  /// split > 1: leaves this part's values and returns true in the team that arrives last.
  __device__ __forceinline__ bool leave_part(std::int64_t at, const float (&acc)[kColumnTiles][4],
                                             int& turn) const {
    float* to = p.partials + (at * p.split + part) * kResults;
    join(acc, turn, [&](int result, float value) { to[result] = value; });
    __threadfence();
    team_barrier();
    if (member == 0 && lane == 0) {
      const bool last = atomicAdd(p.tickets + at, 1) == p.split - 1;
      if (last) p.tickets[at] = 0;
      flags[team] = last;
    }
    team_barrier();
    const bool last = flags[team] != 0;
    __threadfence();
    return last;
  }

  __device__ __forceinline__ void finish(int unit, int units, const float (&acc)[kColumnTiles][4],
                                         int& turn) const {
    if (p.split == 1) {
      join(acc, turn, [&](int result, float value) { store(unit, result, value); });
      return;
    }
    const std::int64_t at = meeting(unit, units);
    if (!leave_part(at, acc, turn)) return;
    const float* from = p.partials + at * p.split * kResults;
    for_own_results([&](int result) {
      store(unit, result, join_slices(p.split, [&](int s) { return __ldcg(from + s * kResults + result); }));
    });
  }

  // Records come in chunks of up to kHeld: while one chunk is multiplied, the next one loads. Chunk by chunk,
  // not record by record: a warp has few counters to wait on, and waiting for one load of many in flight can
  // mean waiting for all.
  using Chunk = Record<kBits>[kHeld];

  /// Where the next chunk starts. Chunks of a slice are about equally long.
  struct Cursor {
    int unit, group, span;
    const std::uint8_t* from;
  };
  __device__ __forceinline__ void aim(Cursor& c, int units) const {
    if (c.unit >= units) return;
    c.from = work.tile(c.unit, 0) + static_cast<std::int64_t>(group_begin) * Record<kBits>::kBytes;
  }
  __device__ __forceinline__ int length(const Cursor& c) const {
    return group_end - c.group < c.span ? group_end - c.group : c.span;
  }
  __device__ __forceinline__ void load_next(Chunk& chunk, Cursor& c, int units) const {
    if (c.unit >= units) return;
    const int count = length(c);
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (j < count) chunk[j].load(c.from + j * Record<kBits>::kBytes, lane);
    }
    c.group += c.span;
    if (c.group < group_end) {
      c.from += c.span * Record<kBits>::kBytes;
    } else {
      c.group = group_begin;
      c.unit += unit_stride;
      aim(c, units);
    }
  }

  __device__ void run_common(int units) {
    const int groups = group_end - group_begin;
    const int chunks = (groups + kHeld - 1) / kHeld;
    Cursor cursor{first_unit, group_begin, (groups + chunks - 1) / chunks, nullptr};
    aim(cursor, units);
    Chunk next;
    load_next(next, cursor, units);
    wait_for_predecessor();
    let_successor_start();
    stage();
    int turn = 0;
    for (int unit = first_unit; unit < units; unit += unit_stride) {
      Columns at;
      aim_columns(at, unit);
      float acc[kColumnTiles][4] = {};
#pragma unroll 1
      for (int base = group_begin; base < group_end; base += cursor.span) {
        Chunk now;
#pragma unroll
        for (int j = 0; j < kHeld; ++j) now[j] = next[j];
        load_next(next, cursor, units);
        const int count = group_end - base < cursor.span ? group_end - base : cursor.span;
#pragma unroll
        for (int j = 0; j < kHeld; ++j) {
          if (j < count) add_record(now[j], at, base + j, acc);
        }
      }
      finish(unit, units, acc, turn);
    }
  }

  __device__ void run_any(int units) {
    int turn = 0;
    if constexpr (Work::kGathered) {
      if (p.copies_input) copy_input();
    } else {
      wait_for_predecessor();
      let_successor_start();
      stage();
    }
    for (int unit = first_unit; unit < units; unit += unit_stride) {
      Columns at;
      aim_columns(at, unit);
      const std::uint8_t* tile = work.tile(unit, 0);
      float acc[kColumnTiles][4] = {};
      for (int g = group_begin; g < group_end; ++g) add_any(tile, at, g, acc);
      finish(unit, units, acc, turn);
    }
  }

  __device__ void run() {
    if constexpr (Work::kGathered) {  // the list of work is the predecessor's
      wait_for_predecessor();
      let_successor_start();
    }
    const int units = work.units();
    if constexpr (kCommon) {
      static_assert(!Work::kGathered);
      run_common(units);
    } else {
      run_any(units);
    }
  }
};

template <int kColumnTiles, int kBits, bool kCommon, class Work>
__global__ void __launch_bounds__(32 * affine_warps(kColumnTiles), 1)
    affine_kernel(const __grid_constant__ Work work, const __grid_constant__ AffineLaunch p) {
  extern __shared__ __align__(16) std::uint8_t affine_shared[];
  AffineKernel<kColumnTiles, kBits, kCommon, Work>(work, p, affine_shared).run();
}

}  // namespace mererun::cuda
