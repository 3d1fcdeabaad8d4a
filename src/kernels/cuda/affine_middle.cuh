#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/affine_middle_plan.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/linear_work.cuh"
#include "kernels/cuda/warpgroup_mma.cuh"

// The quantised linear for a few dozen activation rows and the common layout, with matrix instructions of a
// warpgroup: weights pass through once, and what limits is how many instructions scale and add the results.
//
// A block has one part of the slices of all rows: its codes are copied into shared memory once and stay.
// Each warpgroup takes runs of 64 weight rows; a warp owns the results of one row tile and all columns. Its
// records come through a ring of its own, filled by the bulk copy engine. Parts of a run meet in memory,
// where the warp that comes last joins them.

namespace mererun::cuda {

/// What the kernel is told beside its work.
struct MiddleLaunch {
  ActivationCodes x;          // planes
  int groups = 0;             // of a row
  int slice_shift = 0;        // log2 of the slices of a row
  int split_shift = 0;        // log2 of the parts
  int member_shift = 0;       // log2 of the warpgroups that share a run's part
  int blocks = 0;             // of a part
  int stages = 0;             // of a warp's ring
  float* partials = nullptr;  // split > 1: [piece][run][part][result][thread of a warpgroup]
  int* tickets = nullptr;     // split > 1: [piece][run][warp of four], zero before and after
};

/// Adds one to a counter and returns what it was. What the warp wrote before is there for whoever sees the
/// sum, and what was written before the sums it sees is there for the warp.
__device__ __forceinline__ int meet(int* counter) {
  int before = 0;
  __syncwarp();
  if ((threadIdx.x & 31) == 0)
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return __shfl_sync(kAllLanes, before, 0);
}

template <int kBits, int kRows>
struct MiddleKernel {
  static constexpr int kColumns = middle_columns(kRows);
  static constexpr int kResults = kColumns / 2;  // of a thread
  // A matrix instruction takes 16 columns.
  static constexpr int kHalves = kColumns / 16, kHalfResults = 8;
  static constexpr int kRecord = Record<kBits>::kBytes;
  static constexpr int kChunk = 2 * kRecord;        // what a warp waits for at a time: two groups
  static constexpr int kHalfBytes = kColumns * 16;  // 16 bytes of every column
  static constexpr int kGroupBytes = 8 * kHalfBytes, kSideBytes = kColumns * 8;
  using Work = LinearWork<1>;

  const Work& work;
  const MiddleLaunch& p;
  int lane, warp, team, member, members;
  int part, piece, first_run, run_stride, runs;
  int first_slice, slices, held;  // slices and groups of this warpgroup
  int part_slice, part_begin;     // of the block
  BulkBarrier* staged;            // [slices of the block]
  std::uint8_t *ring, *codes, *sides;
  float* joins;  // of this team: [member][result][thread of a warpgroup]

  __device__ MiddleKernel(const Work& w, const MiddleLaunch& launch, std::uint8_t* shared)
      : work(w), p(launch) {
    lane = static_cast<int>(threadIdx.x & 31);
    // The same for all lanes as the compiler sees it: matrix instructions run in the background only where no
    // branch around them may part lanes.
    warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 32), 0);
    members = 1 << p.member_shift;
    team = warp / 4 >> p.member_shift;
    member = warp / 4 & (members - 1);
    const int teams = static_cast<int>(blockDim.x) / 128 >> p.member_shift;
    int block = static_cast<int>(blockIdx.x);
    part = block & ((1 << p.split_shift) - 1);
    block >>= p.split_shift;
    piece = block / p.blocks;
    first_run = block - piece * p.blocks + team * p.blocks;
    run_stride = teams * p.blocks;
    runs = (work.units() + 3) / 4;
    const int part_shift = p.slice_shift - p.split_shift;
    slices = 1 << (part_shift - p.member_shift);
    part_slice = part << part_shift;
    first_slice = part_slice + member * slices;
    part_begin = slice_begin(part_slice);
    held = slice_begin(first_slice + slices) - slice_begin(first_slice);
    const int part_groups = slice_begin(part_slice + (1 << part_shift)) - part_begin;
    staged = reinterpret_cast<BulkBarrier*>(shared);
    codes = shared + 128;
    sides = codes + part_groups * kGroupBytes;
    std::uint8_t* behind = sides + part_groups * kSideBytes;
    joins = reinterpret_cast<float*>(behind) + team * members * kResults * 128;
    if (members > 1) behind += (kMostWarpgroups - 1) * kResults * 128 * 4;
    ring = behind + warp * p.stages * kChunk;
  }

  /// As numerics::slice_begin.
  __device__ __forceinline__ int slice_begin(int j) const { return j * p.groups >> p.slice_shift; }
  __device__ __forceinline__ int slice_groups(int j) const { return slice_begin(j + 1) - slice_begin(j); }

  /// By one thread: copies the block's codes, a barrier a slice, the first slices of all members first.
  __device__ __forceinline__ void stage_codes() const {
    const auto* from = reinterpret_cast<const std::uint8_t*>(p.x.codes + p.x.codes_offset(piece));
    const auto* from_sides = reinterpret_cast<const std::uint8_t*>(p.x.sides + p.x.sides_offset(piece));
#pragma unroll 1
    for (int i = 0; i < slices; ++i) {
#pragma unroll 1
      for (int m = 0; m < members; ++m) {
        const int j = m * slices + i;
        const int first = slice_begin(part_slice + j), count = slice_groups(part_slice + j);
        staged[j].arrive_for(count * (kGroupBytes + kSideBytes));
        staged[j].copy(codes + (first - part_begin) * kGroupBytes, from + first * kGroupBytes,
                       count * kGroupBytes);
        staged[j].copy(sides + (first - part_begin) * kSideBytes, from_sides + first * kSideBytes,
                       count * kSideBytes);
      }
    }
  }

  // Records of a run's part lie one after the other: a warp asks for them in chunks of two, each a group of
  // copies of its own, none behind the last chunk.

  struct Fetch {
    const std::uint8_t* from;  // of this lane
    int run, left;             // groups
  };
  __device__ __forceinline__ int unit_of(int run) const { return 4 * run + (warp & 3); }
  __device__ __forceinline__ void aim(Fetch& f) const {
    const int unit = unit_of(f.run), last = work.units() - 1;
    f.from = work.tile(unit < last ? unit : last, 0) +
             static_cast<std::int64_t>(slice_begin(first_slice)) * kRecord + 16 * lane;
    f.left = held;
  }
  __device__ __forceinline__ void fetch(std::uint8_t* slot, Fetch& f) const {
    if (f.run < runs) {
      const int vectors = f.left > 1 ? kChunk / 16 : kRecord / 16;
#pragma unroll
      for (int i = 0; i < (kChunk / 16 + 31) / 32; ++i) {
        if (lane + 32 * i < vectors) copy_async16(slot + 16 * (lane + 32 * i), f.from + 512 * i);
      }
      f.from += kChunk;
      f.left -= 2;
      if (f.left <= 0) {
        f.run += run_stride;
        if (f.run < runs) aim(f);
      }
    }
    copy_commit();
  }
  /// Waits for the oldest of `stages` chunks.
  __device__ __forceinline__ void wait_chunk() const {
    if (p.stages == 4) {
      copy_wait<3>();
    } else if (p.stages == 3) {
      copy_wait<2>();
    } else {
      copy_wait<1>();
    }
    __syncwarp();
  }

  using Values = float[kResults];
  struct Sums {
    int high[kHalfResults], low[kHalfResults];
  };
  using Operands = std::uint32_t[2][4];

  /// Starts multiplying half `h` of a group whose codes `at` describes.
  static __device__ __forceinline__ void start(Sums& sums, Operands& w, std::uint64_t at, int h) {
    constexpr std::uint64_t kPlane = 2 * kHalfBytes >> 4, kStep = 4 * kHalfBytes >> 4;
    at += static_cast<std::uint64_t>(h * 16 * 16 >> 4);
#pragma unroll
    for (int i = 0; i < 8; ++i) asm volatile("" : "+r"(w[i / 4][i % 4])::"memory");  // ready by now
    warpgroup_fence();
    multiply_async<kBits != 4, false>(sums.high, w[0], at);
    multiply_async<kBits != 4, false>(sums.low, w[0], at + kPlane);
    multiply_async<kBits != 4, true>(sums.high, w[1], at + kStep);
    multiply_async<kBits != 4, true>(sums.low, w[1], at + kStep + kPlane);
    warpgroup_commit();
  }

  /// Waits for half `h` of a group, then acc = fma(s * d, float(I), acc); acc = fma(b, D, acc). kPending:
  /// halves started after it.
  template <int kPending>
  __device__ __forceinline__ void add(Values& acc, Sums& sums, uint2 own, const std::uint8_t* d,
                                      int h) const {
    warpgroup_wait<kPending>(sums.high);
    warpgroup_wait<kPending>(sums.low);
    const RowSides w = narrow_sides(own);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float4 x = *reinterpret_cast<const float4*>(d + 8 * (16 * h + 8 * n + 2 * (lane % 4)));
      const auto term = [&](int i, float s, float b, float divisor, float sum) {
        const float dot = __int2float_rn(sums.high[4 * n + i] * 256 + sums.low[4 * n + i]);
        float& to = acc[kHalfResults * h + 4 * n + i];
        to = __fmaf_rn(b, sum, __fmaf_rn(__fmul_rn(s, divisor), dot, to));
        asm volatile("" : "+f"(to));  // before the next wait, not behind it
      };
      term(0, w.s0, w.b0, x.x, x.y);
      term(1, w.s0, w.b0, x.z, x.w);
      term(2, w.s1, w.b1, x.x, x.y);
      term(3, w.s1, w.b1, x.z, x.w);
    }
  }

  /// Ends this warpgroup's slice j: values join what waits for them, and wait themselves unless they are the
  /// last. `waiting` is in the thread's own memory, which a slice's end is rare enough for.
  __device__ __forceinline__ void end_slice(int j, Values& acc, Values* waiting) const {
#pragma unroll 1
    for (int level = 0; 1 << level < slices; ++level) {
      if ((j >> level & 1) == 0) {
#pragma unroll
        for (int i = 0; i < kResults; ++i) {
          waiting[level][i] = acc[i];
          acc[i] = 0;
        }
        return;
      }
#pragma unroll
      for (int i = 0; i < kResults; ++i) acc[i] = waiting[level][i] + acc[i];
    }
  }

  /// Stores a thread's result i of a run: column and row as the matrix instruction has them.
  struct Store {
    typename Work::Rows rows;
    int columns, first_column, lane;
    bool live;
    __device__ __forceinline__ void operator()(int i, float value) const {
      const int column = first_column + i / 4 * 8 + 2 * (lane % 4) + (i & 1);
      if (live && column < columns) rows.store(column, lane / 4 + (i >> 1 & 1) * 8, value);
    }
  };

  /// Ends a part of a run whose results are value(i), those of every `members`-th result: stores them, or
  /// leaves them where parts meet; the warp that comes last joins them.
  template <int kEach, typename Value>
  __device__ __forceinline__ void end_part(int run, int first, Value value) const {
    const int unit = unit_of(run), last = work.units() - 1;
    const Store store{work.rows_of(unit < last ? unit : last), p.x.rows, piece * kBlockColumns, lane,
                      unit <= last};
    if (p.split_shift == 0) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) store(first + i, value(i));
      return;
    }
    const int split = 1 << p.split_shift;
    const std::int64_t meeting = static_cast<std::int64_t>(piece) * runs + run;
    float* own = p.partials + (meeting * split * kResults + first) * 128 + (threadIdx.x & 127);
#pragma unroll
    for (int i = 0; i < kEach; ++i) __stcg(own + (part * kResults + i) * 128, value(i));
    int* counter = p.tickets + 16 * meeting + 4 * member + (warp & 3);
    if (meet(counter) != split - 1) return;
    if (lane == 0) *counter = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      store(first + i, join_slices(split, [&](int s) { return __ldcg(own + (s * kResults + i) * 128); }));
    }
  }

  /// Joins what the members of a team have of a run; each ends an equal share of the results.
  template <int kMembers>
  __device__ __forceinline__ void join_members(int run, const Values& acc) const {
    float* own = joins + member * kResults * 128 + (threadIdx.x & 127);
    barrier(1 + team, 128 * kMembers);  // nobody reads the run before any more
#pragma unroll
    for (int i = 0; i < kResults; ++i) own[i * 128] = acc[i];
    barrier(1 + team, 128 * kMembers);
    constexpr int kEach = kResults / kMembers;
    const float* from = joins + member * kEach * 128 + (threadIdx.x & 127);
    end_part<kEach>(run, member * kEach, [&](int i) {
      return join_slices(kMembers, [&](int m) { return from[(m * kResults + i) * 128]; });
    });
  }
  __device__ __forceinline__ void finish(int run, const Values& acc) const {
    if (members == 4) {
      join_members<4>(run, acc);
    } else if (members == 2) {
      join_members<2>(run, acc);
    } else {
      end_part<kResults>(run, 0, [&](int i) { return acc[i]; });
    }
  }

  __device__ void run() {
    Fetch ahead{};
    ahead.run = first_run;
    if (first_run < runs) aim(ahead);
    std::uint8_t* const ring_end = ring + p.stages * kChunk;
#pragma unroll 1
    for (std::uint8_t* slot = ring; slot != ring_end; slot += kChunk) fetch(slot, ahead);
    if (threadIdx.x == 0) {
#pragma unroll
      for (int j = 0; j < numerics::kLinearSlices; ++j) staged[j].start(1);
      publish_barriers();
    }
    __syncthreads();
    wait_for_predecessor();
    let_successor_start();
    if (threadIdx.x == 0) stage_codes();

    std::uint8_t* chunk = ring;
    Values waiting[3];
    const int own_begin = slice_begin(first_slice) - part_begin;
#pragma unroll 1
    for (int run = first_run; run < runs; run += run_stride) {
      Values acc = {};
      std::uint64_t at = describe_rows(codes + own_begin * kGroupBytes, kHalfBytes);
      const std::uint8_t* d = sides + own_begin * kSideBytes;
      int slice = 0, slice_left = slice_groups(first_slice);
      const auto count_group = [&] {
        if (--slice_left > 0) return;
        end_slice(slice++, acc, waiting);
        slice_left = slice_groups(first_slice + slice);
      };
      int awaited = 0, ready = 0;  // slices whose codes are there, and their groups
#pragma unroll 1
      for (int left = held; left > 0; left -= 2) {
        while (ready < held - left + 2 && awaited < slices) {
          staged[member * slices + awaited].wait(0);
          ready += slice_groups(first_slice + awaited++);
        }
        wait_chunk();
        Record<kBits> record[2];
        record[0].read(chunk, lane);
        record[1].read(chunk + kRecord, lane);  // the last one of an odd count is an old one
        __syncwarp();
        fetch(chunk, ahead);
        chunk = chunk + kChunk == ring_end ? ring : chunk + kChunk;
        Operands w[2];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
          record[g].operand(w[g][0], 0);
          record[g].operand(w[g][1], 1);
        }
        Sums sums[2];
        const auto begin = [&](int item) {
          const int g = item / kHalves;
          start(sums[item % 2], w[g], at + static_cast<std::uint64_t>(g * (kGroupBytes >> 4)),
                item % kHalves);
        };
        begin(0);
        begin(1);
        add<1>(acc, sums[0], record[0].sides, d, 0);
        if constexpr (kHalves == 2) {
          begin(2);
          add<1>(acc, sums[1], record[0].sides, d, 1);
          begin(3);
        }
        count_group();
        if (left > 1) {
          if constexpr (kHalves == 2) add<1>(acc, sums[0], record[1].sides, d + kSideBytes, 0);
          add<0>(acc, sums[1], record[1].sides, d + kSideBytes, kHalves - 1);
          count_group();
        } else {
          warpgroup_wait<0>(sums[0].high);
        }
        at += 2 * kGroupBytes >> 4;
        d += 2 * kSideBytes;
      }
      finish(run, acc);
    }
  }
};

template <int kBits, int kRows>
__global__ void __launch_bounds__(128 * kMostWarpgroups, 1)
    middle_kernel(const __grid_constant__ LinearWork<1> work, const __grid_constant__ MiddleLaunch p) {
  extern __shared__ __align__(128) std::uint8_t middle_memory[];
  MiddleKernel<kBits, kRows>(work, p, middle_memory).run();
}

}  // namespace mererun::cuda
