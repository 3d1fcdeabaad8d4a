#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/attend_config.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/numerics.h"

// What a block of the attention kernel keeps in shared memory, and how a tile of the cache gets there.

namespace mererun::cuda {

namespace nm = numerics;

inline constexpr int kKeys = nm::kTilePositions;
using nm::kSegmentPositions;
inline constexpr int kAttendWarps = kAttendThreads / 32;

struct Attend {
  Matrix<const float> q, q_gate;
  const int* positions;
  KvLayerView cache;
  int heads, group, rows, block_queries, chunks;
  float scale_log2e;
  Matrix<float> out;
  float* partials;    // [row * heads + head][chunk][m, l, o...]
  int row_pages = 0;  // pages of each row's own table; 0: one table for all rows
};

/// Where a block leaves the partial softmax of one query.
__device__ __forceinline__ float* partial_of(const Attend& p, int kv_head, int query, int chunk) {
  const int t = query / p.group;
  const int head = kv_head * p.group + query % p.group;
  return p.partials +
         ((static_cast<std::int64_t>(t) * p.heads + head) * p.chunks + chunk) * (p.cache.head_dim + 2);
}

__device__ __forceinline__ float gated(float o, float l, float gate) {
  return (o / l) * nm::sigmoid_f32(gate);
}

/// A query's bookkeeping in shared memory.
struct Query {
  int visible;           // keys it sees; 0: no query
  float tile_m, tile_l;  // of the tile at hand
  float keep, add;       // factors that fold the tile into the segment
  float segment_m, segment_l;
  float whole_keep, whole_add;  // factors that fold the segment into the whole
  float whole_m, whole_l;
  int segment_first, segment_ends;  // the tile starts a segment; the segment ends with it
  int whole_first;
};

/// Shared memory of a block, carved in this order.
struct Shared {
  std::uint32_t* keys;    // [64][pitch] pairs of int16
  std::uint32_t* values;  // [64][(dim + 1) / 2]
  float *key_scales, *value_scales;
  float* q;                // [queries][dim padded to 4]
  float* weights;          // [queries][64] scores, then exponentials
  float* scaled;           // [queries][64] exponentials times the value's scale
  float *segment, *whole;  // [queries][dim]
  Query* queries;
  int q_pitch, pitch, value_pitch;

  template <AttendSpan kSpan>
  __device__ static Shared carve(float* at, int dim, int queries) {
    Shared s;
    s.q_pitch = (dim + 3) & ~3;
    s.pitch = key_pitch_words(dim);
    s.value_pitch = (dim + 1) / 2;
    s.q = at;  // first: read in vectors of four
    at += queries * s.q_pitch;
    s.weights = at;
    at += queries * kKeys;
    s.scaled = at;
    at += queries * kKeys;
    s.key_scales = at;
    at += kKeys;
    s.value_scales = at;
    at += kKeys;
    s.segment = at;
    if (kSpan != AttendSpan::kTile) at += queries * dim;
    s.whole = at;
    if (kSpan == AttendSpan::kWhole) at += queries * dim;
    s.queries = reinterpret_cast<Query*>(at);
    at += queries * static_cast<int>(sizeof(Query) / 4);
    s.keys = reinterpret_cast<std::uint32_t*>(at);
    s.values = s.keys + kKeys * s.pitch;
    return s;
  }
};

__device__ __forceinline__ float low_code(std::uint32_t pair) {
  return static_cast<float>(static_cast<std::int16_t>(pair & 0xffffu));
}
__device__ __forceinline__ float high_code(std::uint32_t pair) {
  return static_cast<float>(static_cast<std::int16_t>(pair >> 16));
}

/// Sum of the first `count` of a tile's exponentials, keys ascending.
__device__ __forceinline__ float sum_seen(const float* weights, int count) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kKeys; j += 4) {
    const float4 w = *reinterpret_cast<const float4*>(weights + j);
    sum = j + 0 < count ? sum + w.x : sum;
    sum = j + 1 < count ? sum + w.y : sum;
    sum = j + 2 < count ? sum + w.z : sum;
    sum = j + 3 < count ? sum + w.w : sum;
  }
  return sum;
}

/// The factors of a fold, keep and add, from the maxima alone.
__device__ __forceinline__ float2 factors_of(float left, float next) {
  const nm::SoftmaxFold f = nm::fold_of(left, next);
  return make_float2(f.keep, f.add);
}
/// A fold of sums by such factors.
__device__ __forceinline__ float fold_by(float left, float next, float2 factors) {
  return nm::fold_sum(left, next, nm::SoftmaxFold{0, factors.x, factors.y});
}

/// `count` vectors of codes into shared memory, `pitch` words apart; absent ones become zeros.
__device__ inline void stage_codes(const std::int16_t* from, int dim, int count, std::uint32_t* to,
                                   int pitch) {
  const int words = (dim + 1) / 2;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * words; i += kAttendThreads) {
    const int key = i / words;
    const int d = i % words * 2;
    std::uint32_t pair = 0;
    if (key < count) {
      const std::int16_t* at = from + static_cast<std::int64_t>(key) * dim + d;
      pair = static_cast<std::uint16_t>(at[0]);
      if (d + 1 < dim) pair |= static_cast<std::uint32_t>(static_cast<std::uint16_t>(at[1])) << 16;
    }
    to[key * pitch + i % words] = pair;
  }
}

/// A thread's share of a tile's keys or values where a vector of codes is 8, 16 or 32 times 16 bytes: all
/// loads are under way before the first is stored.
struct HeldCodes {
  static constexpr int kMost = kKeys * 32 / kAttendThreads;
  uint4 v[kMost];

  __device__ __forceinline__ static bool serves(const std::int16_t* codes, int dim) {
    return (dim == 64 || dim == 128 || dim == 256) &&
           reinterpret_cast<std::uintptr_t>(codes) % sizeof(uint4) == 0;
  }
  __device__ __forceinline__ void load(const std::int16_t* from, int dim, int count) {
    const auto* vectors = reinterpret_cast<const uint4*>(from) + threadIdx.x;
    const int left = count * (dim / 8) - static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      v[i] = i * kAttendThreads < left ? vectors[i * kAttendThreads] : make_uint4(0, 0, 0, 0);
  }
  __device__ __forceinline__ void store(std::uint32_t* to, int dim, int pitch) const {
    const int tid = static_cast<int>(threadIdx.x), shift = 31 - __clz(dim / 8);
    int key = tid >> shift;
    std::uint32_t* at = to + key * pitch + 4 * (tid & (dim / 8 - 1));
#pragma unroll
    for (int i = 0; i < kMost && key < kKeys; ++i) {
      at[0] = v[i].x;
      at[1] = v[i].y;
      at[2] = v[i].z;
      at[3] = v[i].w;
      at += (kAttendThreads >> shift) * pitch;
      key += kAttendThreads >> shift;
    }
  }
};

/// Keys and values [first, first + count) of one KV head, out of the page table at `pages`.
__device__ inline void stage_tile(const Attend& p, const Shared& s, const std::byte* const* pages,
                                  int kv_head, int first, int count) {
  const int dim = p.cache.head_dim;
  const std::byte* page = pages[first / kKvPagePositions];  // a tile lies inside one page
  const std::int64_t slot = static_cast<std::int64_t>(kv_head) * kKvPagePositions + first % kKvPagePositions;
  const auto* keys = reinterpret_cast<const std::int16_t*>(page + p.cache.key_codes) + slot * dim;
  const auto* values = reinterpret_cast<const std::int16_t*>(page + p.cache.value_codes) + slot * dim;
  const int tid = static_cast<int>(threadIdx.x);
  float key_scale = 0, value_scale = 0;
  if (tid < count) {
    key_scale = reinterpret_cast<const float*>(page + p.cache.key_scales)[slot + tid];
    value_scale = reinterpret_cast<const float*>(page + p.cache.value_scales)[slot + tid];
  }
  if (HeldCodes::serves(keys, dim) && HeldCodes::serves(values, dim)) {
    HeldCodes key_codes, value_codes;
    key_codes.load(keys, dim, count);
    value_codes.load(values, dim, count);
    key_codes.store(s.keys, dim, s.pitch);
    value_codes.store(s.values, dim, s.value_pitch);
  } else {
    stage_codes(keys, dim, count, s.keys, s.pitch);
    stage_codes(values, dim, count, s.values, s.value_pitch);
  }
  if (tid < count) {
    s.key_scales[tid] = key_scale;
    s.value_scales[tid] = value_scale;
  }
}

/// Starts to copy the vectors of `queries` queries from `first` on, `pitch` floats apart, a warp a query;
/// absent ones, up to `room`, become zeros. Copies are under way until copy_wait.
__device__ inline void copy_queries(const Attend& p, int kv_head, int first, int queries, int room, int dim,
                                    float* to, int pitch) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x & 31);
  const bool is_whole =
      dim % 4 == 0 && p.q.stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.q.data) % sizeof(float4) == 0;
  for (int i = warp; i < room; i += kAttendWarps) {
    float* own = to + i * pitch;
    if (i >= queries) {
      for (int d = lane; d < dim; d += 32) own[d] = 0;
      continue;
    }
    const int t = (first + i) / p.group, head = kv_head * p.group + first + i - t * p.group;
    const float* from = p.q.row(t) + head * dim;
    if (is_whole) {
      for (int d = 4 * lane; d < dim; d += 128) copy_async16(own + d, from + d);
    } else {
      for (int d = lane; d < dim; d += 32) own[d] = from[d];
    }
  }
  copy_commit();
}

}  // namespace mererun::cuda
