#pragma once

#include "kernels/cuda/affine_config.h"
#include "kernels/cuda/affine_math.cuh"
#include "kernels/cuda/code_span.cuh"
#include "kernels/cuda/few_choice.cuh"
#include "kernels/cuda/few_experts.cuh"

namespace mererun::cuda {

inline constexpr int kSpanPitch = kSpanRows + 4;                  // floats between columns of a span
inline constexpr int kSpanFloats = kFewColumns * kSpanPitch;      // of a span's hidden rows
inline constexpr int kJoinFloats = 2 * kFewColumns * kJoinPitch;  // of a warp's results of gate and up
inline constexpr int kGroupBytes = Record<4>::kBytes;
inline constexpr int kAtOnce = 4;  // groups whose codes a warp loads at a time

/// Where all blocks of a launch wait for one another, once: the top bit of the count flips when the last one
/// has arrived, from launch to launch.
class Meeting {
 public:
  /// Before this block arrives.
  __device__ explicit Meeting(unsigned* count)
      : count_(count), before_(*static_cast<const volatile unsigned*>(count)) {}
  /// What the block has written is seen by all after wait().
  __device__ __forceinline__ void arrive() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    atomicAdd(count_, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
  }
  __device__ __forceinline__ void wait() const {
    if (threadIdx.x == 0) {
      while (((*static_cast<const volatile unsigned*>(count_) ^ before_) & 0x80000000u) == 0) {
      }
      __threadfence();
    }
    __syncthreads();
  }

 private:
  unsigned* count_;
  unsigned before_;
};

/// One block of the launch: its list of entries, its spans of gate and up, the meeting, its row tiles of the
/// output.
struct FewExpertsBlock {
  const FewExpertsLaunch& p;
  FewEntries& entries;
  FewStream& stream;
  int warp, lane, team, slice;
  int group_begin, group_end;  // of gate and up, in this warp's slice
  float *weights, *share, *residual, *hidden, *y, *joins;
  uint4* x_codes;
  float2* x_sides;
  std::uint8_t* shared;

  __device__ FewExpertsBlock(FewEntries& list, FewStream& records, std::uint8_t* memory)
      : p(list.p), entries(list), stream(records), shared(memory) {
    warp = static_cast<int>(threadIdx.x / 32);
    lane = static_cast<int>(threadIdx.x & 31);
    team = static_cast<int>(threadIdx.x / 32 / static_cast<unsigned>(p.slices));
    slice = warp - team * p.slices;
    group_begin = numerics::slice_begin(slice, p.slices, p.gate_groups);
    group_end = numerics::slice_begin(slice + 1, p.slices, p.gate_groups);
    const auto floats = [&](int at) { return reinterpret_cast<float*>(memory + at); };
    weights = floats(p.at.weights);
    share = floats(p.at.share);
    residual = floats(p.at.residual);
    hidden = floats(p.at.hidden);
    y = floats(p.at.y);
    joins = floats(p.at.joins);
    x_codes = reinterpret_cast<uint4*>(memory + p.at.x);
    x_sides = reinterpret_cast<float2*>(x_codes + p.x.code_vectors());
  }

  /// The ids of every row, as keys of the list.
  __device__ __forceinline__ void read_ids() const {
    if (p.route.logits.data == nullptr) {
      const int i = static_cast<int>(threadIdx.x);
      if (i < p.assignments) entries.first[i] = FewEntries::key(p.ids.row(i / p.chosen)[i % p.chosen], i);
    } else {
      const FewChoice choice(shared + p.at.joins, p.route.experts, p.rows, p.chosen);
      choice.run(p, [&](int t, int i, int id) {
        entries.first[t * p.chosen + i] = FewEntries::key(id, t * p.chosen + i);
        if (blockIdx.x == 0) p.route.ids.row(t)[i] = id;
      });
    }
    __syncthreads();
  }

  /// Starts to copy the codes of x.
  __device__ __forceinline__ void copy_x() const {
    const int codes = p.x.code_vectors(), sides = p.x.row_side_vectors();
    const auto* from = reinterpret_cast<const uint4*>(p.x.sides);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < codes; i += kFewThreads)
      copy_async16(x_codes + i, p.x.codes + i);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < sides; i += kFewThreads)
      copy_async16(x_codes + codes + i, from + i);
    copy_commit();
  }

  /// The weights of every assignment and what the shared expert's rows are multiplied by.
  __device__ __forceinline__ void read_weights() const {
    const int i = static_cast<int>(threadIdx.x);
    if (p.shared_logits.data != nullptr && i < p.rows)
      share[i] = numerics::sigmoid_f32(p.shared_logits.row(i)[0]);
    if (p.route.logits.data == nullptr) {
      if (i < p.assignments) weights[i] = p.weights.row(i / p.chosen)[i % p.chosen];
      return;
    }
    const int t = kFewWarps - 1 - warp;
    if (t >= p.rows) return;
    float* own = weights + t * p.chosen;
    weigh_experts(
        p.route.logits.row(t), p.route.experts, p.chosen, true,
        [&](int j) { return entries.expert[entries.place[t * p.chosen + j]]; }, own);
    __syncwarp();
    if (blockIdx.x == 0 && lane < p.chosen) p.route.weights.row(t)[lane] = own[lane];
  }

  /// Calls use(i, t, n) for the elements of the output that this block owns, 16 columns of every row.
  template <typename Use>
  __device__ __forceinline__ void each_output(int tile, Use use) const {
    const int i = static_cast<int>(threadIdx.x);
    const int n = tile * kTileRows + i % kTileRows;
    if (i < p.rows * kTileRows && n < p.columns) use(i, i / kTileRows, n);
  }

  __device__ __forceinline__ void read_residual(int tile) const {
    each_output(tile, [&](int i, int t, int n) { residual[i] = p.residual.row(t)[n]; });
  }

  __device__ __forceinline__ void team_barrier() const {
    if (p.slices == 1) {
      __syncwarp();
    } else {
      barrier(1 + team, 32 * p.slices);
    }
  }
  /// Hidden rows of span j; spans that are in work at a time share none, nor those of the turn before.
  __device__ __forceinline__ float* span_rows(int j) const {
    return hidden + j % (2 * p.spans_at_once) * kSpanFloats;
  }

  /// This warp's slice of a unit of gate and up.
  __device__ __forceinline__ void add_slice(const FewStream::Span& at, int unit, float (&acc)[2][4]) const {
    const int last = at.entry.columns - 1;
    const auto row_of = [&](int column) {
      return entries.row_at(at.entry.first + (column < last ? column : last));
    };
    const uint4* codes = x_codes + row_of(lane / 4) * (p.gate_groups * 8) + lane % 4;
    const int side_stride = (p.gate_groups + 1) & ~1;
    const float2* first = x_sides + row_of(2 * (lane % 4)) * side_stride;
    const float2* second = x_sides + row_of(2 * (lane % 4) + 1) * side_stride;
    const std::uint8_t* from = stream.wait(unit);
#pragma unroll 2
    for (int g = group_begin; g < group_end; ++g) {
      Record<4> records[2];
      records[0].read(from + g * kGroupBytes, lane);
      records[1].read(from + p.gate.tile_bytes + g * kGroupBytes, lane);
      const uint4 high = codes[8 * g], low = codes[8 * g + 4];
      const uint4 x[2] = {{high.x, high.y, low.x, low.y}, {high.z, high.w, low.z, low.w}};
      const float2 a = first[g], b = second[g];
      const float4 sides = make_float4(a.x, a.y, b.x, b.y);
      add_record(records[0], x, sides, acc[0]);
      add_record(records[1], x, sides, acc[1]);
    }
  }

  /// A row tile of gate and up: silu(gate x) * (up x) of an entry's columns, by a team.
  __device__ __forceinline__ void run_unit(int unit) const {
    const FewStream::Span at = stream.span(unit / kSpanTiles);
    float acc[2][4] = {};
    add_slice(at, unit, acc);
    team_barrier();  // the results of the unit before have been read
    float* own = joins + warp * kJoinFloats;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = 2 * (lane % 4) + (e & 1);
        own[(r * kFewColumns + column) * kJoinPitch + lane / 4 + (e >> 1) * 8] = acc[r][e];
      }
    }
    team_barrier();
    if (slice == 0) stream.fill(unit + p.stages);
    const float* slices = joins + team * p.slices * kJoinFloats;
    float* to = span_rows(unit / kSpanTiles) + unit % kSpanTiles * kTileRows;
#pragma unroll 1
    for (int i = slice * 32 + lane; i < at.entry.columns * kTileRows; i += 32 * p.slices) {
      const int column = i / kTileRows, row = i % kTileRows;
      const float* from = slices + column * kJoinPitch + row;
      const float gate = join_slices(p.slices, [&](int s) { return from[s * kJoinFloats]; });
      const float* second = from + kFewColumns * kJoinPitch;
      const float up = join_slices(p.slices, [&](int s) { return second[s * kJoinFloats]; });
      to[column * kSpanPitch + row] = numerics::silu_f32(gate) * up;
    }
  }

  /// Codes a pair of the hidden rows of span j.
  __device__ __forceinline__ void code_pair(int j, int pair) const {
    const FewStream::Span at = stream.span(j);
    if (2 * pair >= at.entry.columns) return;
    const int column = 2 * pair + lane / 16, element = 4 * (lane % 16);
    const float* from = span_rows(j) + column * kSpanPitch + element;
    const float values[4] = {from[0], from[1], from[2], from[3]};
    code_span(p.hidden, at.entry.first + column, at.group * kSpanRows + element - 4 * lane, values,
              column < at.entry.columns);
  }

  /// Codes of silu(gate x) * (up x) for every place.
  __device__ __forceinline__ void run_gated() const {
    const int teams = p.teams, at_once = p.spans_at_once;
    const int task = kFewWarps - 1 - warp;  // first warps of teams have the stream to fill
    int coded = 0;
#pragma unroll 1
    for (int first = 0; first < stream.units; first += teams) {
      if (first + team < stream.units) run_unit(first + team);
      if (first + teams < (coded + 1) * kSpanTiles) continue;
      __syncthreads();
      const int j = coded + task / kSpanTiles;
      if (task < at_once * kSpanTiles && j * kSpanTiles < stream.units) code_pair(j, task % kSpanTiles);
      coded += at_once;
    }
  }

  /// The down projection of one entry, `records` of it, into y.
  __device__ __forceinline__ void run_entry(int e, int turn) const {
    const auto chunk = static_cast<int>(static_cast<unsigned>(e) / static_cast<unsigned>(p.packed));
    const int stage = stream.units + turn * stream.chunks + chunk, first = chunk * p.packed;
    const FewEntries::Entry entry = entries[e];
    const int last = entry.columns - 1;
    const auto aim = [&](int column, auto&& use) {
      const int at = entry.first + (column < last ? column : last), block = at / kBlockColumns;
      use(block, at % kBlockColumns, p.hidden.columns_of(block));
    };
    const uint4* codes = nullptr;
    const float2* sides[2] = {};
    int code_stride = 0, side_stride[2] = {};
    aim(lane / 4, [&](int block, int c, int wide) {
      codes = p.hidden.codes + p.hidden.codes_offset(block) + c * 4 + lane % 4;
      code_stride = wide * 4;
    });
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      aim(2 * (lane % 4) + j, [&](int block, int c, int wide) {
        sides[j] = p.hidden.sides + p.hidden.sides_offset(block) + c;
        side_stride[j] = (wide + 1) & ~1;
      });
    }
    const std::uint8_t* from = nullptr;
    float acc[4] = {};
#pragma unroll 1
    for (int base = 0; base < p.down_groups; base += kAtOnce) {
      uint4 x[kAtOnce][2];
      float2 d[kAtOnce][2];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (base + j >= p.down_groups) break;
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          x[j][s] = __ldcg(codes + (2 * (base + j) + s) * code_stride);
          d[j][s] = __ldcg(sides[s] + (base + j) * side_stride[s]);
        }
      }
      if (base == 0) from = stream.wait(stage) + (e - first) * p.down.tile_bytes;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (base + j >= p.down_groups) break;
        Record<4> record;
        record.read(from + (base + j) * kGroupBytes, lane);
        add_record(record, x[j], make_float4(d[j][0].x, d[j][0].y, d[j][1].x, d[j][1].y), acc);
      }
    }
    stream.leave(stage, stream.share_of(first));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 2 * (lane % 4) + (i & 1);
      if (column <= last) y[(entry.first + column) * kTileRows + lane / 4 + (i >> 1) * 8] = acc[i];
    }
  }

  /// The output of a row tile, the block's turn-th.
  __device__ __forceinline__ void run_down(int tile, int turn) const {
#pragma unroll 1
    for (int e = warp; e < entries.count(); e += kFewWarps) run_entry(e, turn);
    __syncthreads();
    each_output(tile, [&](int i, int t, int n) {
      const int* place = entries.place + t * p.chosen;
      float acc = mix_experts(
          p.chosen, [&](int j) { return weights[t * p.chosen + j]; },
          [&](int j) { return y[place[j] * kTileRows + i % kTileRows]; });
      if (p.shared_logits.data != nullptr) {
        const float value = p.shared_entries > 0 ? y[(p.assignments + t) * kTileRows + i % kTileRows]
                                                 : p.shared_rows.row(t)[n];
        acc = numerics::fma_f32(share[t], value, acc);
      }
      p.out.row(t)[n] = residual[i] + acc;
    });
  }

  __device__ __forceinline__ void run() {
    stream.open();
    wait_for_predecessor();
    let_successor_start();
    const Meeting meeting(p.meeting);
    read_ids();
    entries.make();
    stream.count();
    if (warp < p.stages) stream.fill(warp);
    int tile = static_cast<int>(blockIdx.x);
    if (stream.units > 0) copy_x();
    read_residual(tile);
    read_weights();
    copy_wait<0>();
    __syncthreads();
    run_gated();
    meeting.arrive();
#pragma unroll 1
    for (int turn = 0; tile < p.tiles; ++turn, tile += static_cast<int>(gridDim.x)) {
      if (turn == 0) {
        meeting.wait();
      } else {  // more tiles than blocks
        __syncthreads();
        read_residual(tile);
      }
      run_down(tile, turn);
    }
  }
};

}  // namespace mererun::cuda
