#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/expert_linear.h"
#include "kernels/cuda/experts.h"

namespace mererun::cuda {

inline constexpr int kFewWarps = 16;
inline constexpr int kFewThreads = 32 * kFewWarps;
inline constexpr int kFewColumns = 8;  // assignments of an entry: columns of a matrix instruction
inline constexpr int kSpanTiles = 4;   // row tiles of a span: what a group of the hidden row's codes covers
inline constexpr int kSpanRows = kSpanTiles * kTileRows;

/// Records of a stack of weights and of the shared expert's, which may be null.
struct ExpertRecords {
  const std::uint8_t *stack, *shared;
  std::int64_t expert_bytes;
  int tile_bytes;

  __device__ __forceinline__ const std::uint8_t* tile(int expert, int i) const {
    return (expert < 0 ? shared : stack + expert * expert_bytes) + static_cast<std::int64_t>(i) * tile_bytes;
  }
};

/// Offsets of what a block keeps in shared memory, in bytes.
struct FewExpertsLayout {
  int full, filled, left, source, place, expert, first, marks, weights, share, residual, hidden, y, joins, x,
      stages;
};

struct FewExpertsLaunch {
  ActivationCodes x, hidden;  // hidden: of the hidden rows, place by place, then the shared expert's
  ExpertRecords gate, up, down;
  FewExpertsLayout at;
  RouteView route;  // logits null: ids and weights are there
  Matrix<const int> ids;
  Matrix<const float> weights, shared_rows, shared_logits, residual;
  Matrix<float> out;
  unsigned* meeting;
  int rows, chosen, assignments;
  int columns, tiles;  // of the output
  int gate_groups, down_groups;
  int slices, teams;                // of gate and up; the warps of a team share a row tile, a slice each
  int spans, spans_at_once;         // of a hidden row; in work at a time
  int shared_entries;               // entries of the shared expert, which come first
  int stages, stage_bytes, packed;  // of the stream; down records of so many entries share a stage
};

/// The assignments of all rows in shared memory, as ExpertList has them in device memory, and the shared
/// expert's. Places of the shared expert's rows follow those of the assignments.
struct FewEntries {
  const FewExpertsLaunch& p;
  int *source, *place, *expert;  // [n]: row of a place, place of an assignment, expert of a place
  int* first;                    // [routed + 1] place of an entry's first assignment, then n
  unsigned* marks;               // [2][warps]
  int routed = 0;                // entries of chosen experts

  struct Entry {
    int expert, first, columns;  // expert -1: the shared one
  };

  __device__ FewEntries(const FewExpertsLaunch& launch, std::uint8_t* shared) : p(launch) {
    source = reinterpret_cast<int*>(shared + p.at.source);
    place = reinterpret_cast<int*>(shared + p.at.place);
    expert = reinterpret_cast<int*>(shared + p.at.expert);
    first = reinterpret_cast<int*>(shared + p.at.first);
    marks = reinterpret_cast<unsigned*>(shared + p.at.marks);
  }

  __device__ __forceinline__ int count() const { return p.shared_entries + routed; }
  __device__ __forceinline__ Entry operator[](int i) const {
    if (i < p.shared_entries) {
      const int t = i * kFewColumns;
      return {-1, p.assignments + t, p.rows - t < kFewColumns ? p.rows - t : kFewColumns};
    }
    const int at = first[i - p.shared_entries];
    return {expert[at], at, first[i - p.shared_entries + 1] - at};
  }
  /// The row of x at a place.
  __device__ __forceinline__ int row_at(int at) const {
    return at < p.assignments ? source[at] : at - p.assignments;
  }

  /// What the list is made of: key(id, i) of assignment i, in `first`; then a barrier of the block.
  __device__ __forceinline__ static int key(int id, int i) { return id * kFewThreads + i; }

  /// Makes the list of the keys. Integers only: the order depends on nothing else.
  __device__ __forceinline__ void make() {
    const int n = p.assignments, i = static_cast<int>(threadIdx.x);
    const int warp = i / 32, lane = i % 32;
    if (i < n) {
      const int own = first[i];
      int at = 0;
#pragma unroll 4
      for (int j = 0; j < n; ++j) at += first[j] < own ? 1 : 0;
      expert[at] = own / kFewThreads;
      source[at] = static_cast<int>(threadIdx.x / static_cast<unsigned>(p.chosen));
      place[i] = at;
    }
    __syncthreads();
    const unsigned starts = __ballot_sync(kAllLanes, i < n && (i == 0 || expert[i] != expert[i - 1]));
    if (lane == 0) marks[warp] = starts;
    __syncthreads();
    int start = i;  // where this place's expert begins
    if (i < n) {
      int w = warp;
      unsigned mask = starts & (0xffffffffu >> (31 - lane));
      while (mask == 0) mask = marks[--w];
      start = 32 * w + 31 - __clz(static_cast<int>(mask));
    }
    const bool opens = i < n && (i - start) % kFewColumns == 0;
    const unsigned openings = __ballot_sync(kAllLanes, opens);
    if (lane == 0) marks[kFewWarps + warp] = openings;
    __syncthreads();
    const unsigned theirs = lane < kFewWarps ? marks[kFewWarps + lane] : 0;
    routed = __reduce_add_sync(kAllLanes, __popc(theirs));
    const int before = __reduce_add_sync(kAllLanes, lane < warp ? __popc(theirs) : 0);
    if (opens) first[before + __popc(openings & ((1u << lane) - 1))] = i;
    if (i == 0) first[routed] = n;
    __syncthreads();
  }
};

/// The records that a block multiplies, on their way through shared memory: tile by tile those of gate and up
/// of its spans, then tile by tile those of the down projections, `packed` entries a stage. They are under
/// way long before they are used; nothing but the room for stages stops them.
struct FewStream {
  const FewExpertsLaunch& p;
  const FewEntries& entries;
  std::uint8_t* stages;
  BulkBarrier* full;
  int* filled;  // [stages] which stage of the stream a place holds or waits for
  int* left;    // [stages] down records of a stage that have been used
  int units;    // row tiles of gate and up
  int chunks;   // stages of down records a row tile

  __device__ FewStream(const FewEntries& of, std::uint8_t* shared) : p(of.p), entries(of) {
    stages = shared + p.at.stages;
    full = reinterpret_cast<BulkBarrier*>(shared + p.at.full);
    filled = reinterpret_cast<int*>(shared + p.at.filled);
    left = reinterpret_cast<int*>(shared + p.at.left);
  }
  /// By every thread, before a barrier of the block.
  __device__ __forceinline__ void open() const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= p.stages) return;
    full[i].start(1);
    filled[i] = -1;
    left[i] = 0;
    publish_barriers();
  }
  /// Once the list is there; then fill(0) to fill(stages - 1).
  __device__ __forceinline__ void count() {
    const int over = entries.count() * p.spans - static_cast<int>(blockIdx.x);
    units = over <= 0 ? 0 : static_cast<int>((static_cast<unsigned>(over) - 1) / gridDim.x + 1) * kSpanTiles;
    chunks =
        static_cast<int>(static_cast<unsigned>(entries.count() - 1) / static_cast<unsigned>(p.packed)) + 1;
  }

  /// Span j of this block: an entry and a group of the codes of its hidden rows.
  struct Span {
    FewEntries::Entry entry;
    int group;
  };
  __device__ __forceinline__ Span span(int j) const {
    const auto all = blockIdx.x + static_cast<unsigned>(j) * gridDim.x;
    const auto spans = static_cast<unsigned>(p.spans);
    return {entries[static_cast<int>(all / spans)], static_cast<int>(all % spans)};
  }

  __device__ __forceinline__ int slot_of(int i) const {
    return static_cast<int>(static_cast<unsigned>(i) % static_cast<unsigned>(p.stages));
  }

  /// Starts the copies of stage i of the stream, if it is not over, by a warp; what was there has been used.
  __device__ __forceinline__ void fill(int i) const {
    const int lane = static_cast<int>(threadIdx.x & 31), slot = slot_of(i);
    std::uint8_t* to = stages + slot * p.stage_bytes;
    BulkBarrier& barrier = full[slot];
    const auto announce = [&](int bytes) {
      atomicExch(filled + slot, i);
      barrier.arrive_for(bytes);
    };
    if (i < units) {
      if (lane > 1) return;
      const Span at = span(i / kSpanTiles);
      const int bytes = p.gate.tile_bytes;
      if (lane == 0) announce(2 * bytes);
      const ExpertRecords& records = lane == 0 ? p.gate : p.up;
      barrier.copy(to + lane * bytes, records.tile(at.entry.expert, at.group * kSpanTiles + i % kSpanTiles),
                   bytes);
      return;
    }
    const auto chunk = static_cast<unsigned>(i - units), turn = chunk / static_cast<unsigned>(chunks);
    const int first = (static_cast<int>(chunk) - static_cast<int>(turn) * chunks) * p.packed;
    const auto tile = static_cast<int>(blockIdx.x + turn * gridDim.x);
    if (tile >= p.tiles) return;
    const int bytes = p.down.tile_bytes;
    const int here = share_of(first);
    if (lane == 0) announce(here * bytes);
#pragma unroll 1
    for (int j = lane; j < here; j += 32)
      barrier.copy(to + j * bytes, p.down.tile(entries[first + j].expert, tile), bytes);
  }
  /// Entries of the stage that begins with entry `first`.
  __device__ __forceinline__ int share_of(int first) const {
    return entries.count() - first < p.packed ? entries.count() - first : p.packed;
  }

  /// Waits for stage i and returns its records. A barrier tells only two phases apart, so whoever is ahead of
  /// the others first waits for its own stage to be the one that is filled.
  __device__ __forceinline__ const std::uint8_t* wait(int i) const {
    const int slot = slot_of(i);
    if ((threadIdx.x & 31) == 0) {
      while (atomicAdd(filled + slot, 0) != i) {
      }
    }
    __syncwarp();
    full[slot].wait(static_cast<int>(static_cast<unsigned>(i) / static_cast<unsigned>(p.stages) & 1));
    return stages + slot * p.stage_bytes;
  }
  /// After a warp has used the records of one of the `share` entries of stage i.
  __device__ __forceinline__ void leave(int i, int share) const {
    int* used = left + slot_of(i);
    __syncwarp();
    int others = 0;
    if ((threadIdx.x & 31) == 0) {
      __threadfence_block();
      others = atomicAdd(used, 1);
      if (others == share - 1) *used = 0;
    }
    if (__shfl_sync(kAllLanes, others, 0) == share - 1) fill(i + p.stages);
  }
};

}  // namespace mererun::cuda
