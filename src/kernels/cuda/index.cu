// The indexer of sparse attention: its queries and keys, and the blocks that a row attends to.

#include "kernels/cuda/head_vector.cuh"
#include "kernels/cuda/sparse.h"

namespace mererun::cuda {

inline namespace index_cu {

namespace nm = numerics;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Index {
  Matrix<const float> qk;
  Rotation rotation;
  const float *q_norm, *k_norm;
  const int* positions;
  int heads, rows;
  float eps;
  Matrix<float> q;
  KvLayerView cache;
};

/// One warp: a query head or the raw key of one row.
__global__ void __launch_bounds__(kThreads) index_append_kernel(Index p) {
  extern __shared__ float index_shared[];
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.index_dim;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int t = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int position = p.positions[t];
  const float* x = p.qk.row(t) + head * dim;
  if (head < p.heads) {
    float* own = index_shared + warp * dim;
    norm_and_rotate(x, p.q_norm, dim, p.eps, p.rotation, position, own);
    float* to = p.q.row(t) + head * dim;
    for (int i = static_cast<int>(threadIdx.x & 31); i < dim; i += 32) to[i] = own[i];
  } else if (head == p.heads) {
    append_codes(p.cache.pages[position / kKvPagePositions], p.cache.index_codes, p.cache.index_scales,
                 position % kKvPagePositions, x, dim);
  }
}

/// One warp a row: the pooled key of the block that the row completes, if it does.
__global__ void __launch_bounds__(kThreads) index_pool_kernel(Index p) {
  extern __shared__ float index_shared[];
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.index_dim;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int t = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (t >= p.rows) return;
  const int position = p.positions[t];
  if ((position + 1) % kIndexBlockPositions != 0) return;
  const int block = position / kIndexBlockPositions;
  std::byte* page = p.cache.pages[block / kIndexPageBlocks];
  const int slot = block % kIndexPageBlocks * kIndexBlockPositions;
  const auto* codes = reinterpret_cast<const std::int16_t*>(page + p.cache.index_codes) + slot * dim;
  const auto* scales = reinterpret_cast<const float*>(page + p.cache.index_scales) + slot;
  float* mean = index_shared + 2 * warp * dim;
  float* key = mean + dim;
  for (int d = lane; d < dim; d += 32) {
    float raw[kIndexBlockPositions];
#pragma unroll
    for (int i = 0; i < kIndexBlockPositions; ++i)
      raw[i] = static_cast<float>(codes[i * dim + d]) * scales[i];
    mean[d] = ((raw[0] + raw[1]) + (raw[2] + raw[3])) * 0.25f;
  }
  __syncwarp();
  norm_and_rotate(mean, p.k_norm, dim, p.eps, p.rotation, block * kIndexBlockPositions, key);
  float* pooled = reinterpret_cast<float*>(page + p.cache.index_pooled) + block % kIndexPageBlocks;
  for (int d = lane; d < dim; d += 32) pooled[d * kIndexPageBlocks] = key[d];
}

struct Select {
  Matrix<const float> q;
  const int* positions;
  KvLayerView cache;
  int heads;
  float scale;    // index_dim^-1/2
  int width;      // scores of a row
  float* scores;  // [T][width]
  int chosen;     // blocks a row
  Matrix<int> blocks;
};

/// Complete blocks at a row's position.
__device__ __forceinline__ int complete_blocks(const Select& p, int t) {
  return (p.positions[t] + 1) / kIndexBlockPositions;
}

/// One thread a block of positions: its score for one row.
__global__ void __launch_bounds__(kThreads) score_blocks_kernel(Select p) {
  extern __shared__ float index_shared[];
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.index_dim;
  const int t = static_cast<int>(blockIdx.y);
  const int complete = complete_blocks(p, t);
  if (static_cast<int>(blockIdx.x) * kThreads >= complete) return;
  for (int i = static_cast<int>(threadIdx.x); i < p.heads * dim; i += kThreads)
    index_shared[i] = p.q.row(t)[i];
  __syncthreads();
  const int block = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (block >= complete) return;
  const std::byte* page = p.cache.pages[block / kIndexPageBlocks];
  const float* key = reinterpret_cast<const float*>(page + p.cache.index_pooled) + block % kIndexPageBlocks;
  float total = 0;
  for (int h = 0; h < p.heads; ++h) {
    const float* q = index_shared + h * dim;
    float dot = 0;
#pragma unroll 8
    for (int d = 0; d < dim; ++d) dot = nm::fma_f32(q[d], key[d * kIndexPageBlocks], dot);
    total = total + (dot > 0.0f ? dot : 0.0f);
  }
  p.scores[static_cast<std::int64_t>(t) * p.width + block] = total * p.scale;
}

constexpr int kChooseThreads = 1024;
constexpr int kDigits = 256;

/// Of a row's scores the k-th largest's bits, and how many scores equal to it are taken: scores are never
/// negative, so their bits order them. By digits of eight bits from the top.
struct Threshold {
  std::uint32_t bits;
  int ties;
};
__device__ Threshold find_threshold(const float* scores, int count, int k) {
  __shared__ int histogram[kDigits];
  __shared__ Threshold found;
  const int tid = static_cast<int>(threadIdx.x);
  if (tid == 0) found = {0, k};
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (tid < kDigits) histogram[tid] = 0;
    __syncthreads();
    const std::uint32_t above = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
    const std::uint32_t prefix = found.bits;
    for (int b = tid; b < count; b += kChooseThreads) {
      const std::uint32_t bits = nm::bits_of(scores[b]);
      if ((bits & above) == prefix) atomicAdd(&histogram[bits >> shift & (kDigits - 1)], 1);
    }
    __syncthreads();
    if (tid == 0) {
      int digit = kDigits - 1;
      int left = found.ties;
      while (digit > 0 && histogram[digit] < left) left -= histogram[digit--];
      found = {prefix | static_cast<std::uint32_t>(digit) << shift, left};
    }
    __syncthreads();
  }
  return found;
}

/// Flags before this thread's own, counted over the block in thread order, and over all of it.
struct Rank {
  int before, all;
};
__device__ Rank rank_flags(bool flag) {
  __shared__ int warps[kChooseThreads / 32];
  const int lane = static_cast<int>(threadIdx.x & 31);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const std::uint32_t marks = __ballot_sync(kAllLanes, flag);
  __syncthreads();  // the counts of the call before have been read
  if (lane == 0) warps[warp] = __popc(marks);
  __syncthreads();
  const int count = warps[lane];
  const int before = warp_add(lane < warp ? count : 0);
  return {before + __popc(marks & ((1u << lane) - 1)), warp_add(count)};
}

/// One block a row: the blocks of highest score, lowest first on ties, ascending.
__global__ void __launch_bounds__(kChooseThreads) choose_blocks_kernel(Select p) {
  wait_for_predecessor();
  let_successor_start();
  const int t = static_cast<int>(blockIdx.x);
  const int count = complete_blocks(p, t);
  const float* scores = p.scores + static_cast<std::int64_t>(t) * p.width;
  const Threshold threshold = find_threshold(scores, count, p.chosen);
  int* blocks = p.blocks.row(t);
  int written = 0, ties = 0;
  for (int first = 0; first < count && written < p.chosen; first += kChooseThreads) {
    const int b = first + static_cast<int>(threadIdx.x);
    const std::uint32_t bits = b < count ? nm::bits_of(scores[b]) : 0;
    const bool equal = b < count && bits == threshold.bits;
    const Rank tie = rank_flags(equal);
    const bool taken = b < count && (bits > threshold.bits || (equal && ties + tie.before < threshold.ties));
    const Rank place = rank_flags(taken);
    if (taken) blocks[written + place.before] = b;
    ties += tie.all;
    written += place.all;
  }
}

}  // namespace index_cu

void run_index_prepare(const LaunchContext& context, const IndexPrepareParams& p) {
  const Index args{matrix<const float>(p.qk),
                   rotation_of(p.rope),
                   p.q_norm.row<const float>(0),
                   p.k_norm.row<const float>(0),
                   p.positions.row<const int>(0),
                   p.heads,
                   p.qk.rows,
                   p.eps,
                   matrix<float>(p.q),
                   p.cache};
  const std::size_t bytes = sizeof(float) * kWarps * static_cast<std::size_t>(p.cache.index_dim);
  allow_shared(index_append_kernel, bytes);
  launch(context, "index_prepare", index_append_kernel,
         {dim3(blocks_for(p.heads + 1, kWarps), static_cast<unsigned>(p.qk.rows)), dim3(kThreads), bytes},
         args);
  allow_shared(index_pool_kernel, 2 * bytes);
  launch(context, "index_prepare", index_pool_kernel,
         {dim3(blocks_for(p.qk.rows, kWarps)), dim3(kThreads), 2 * bytes}, args);
}

void run_select_blocks(const LaunchContext& context, const SelectBlocksParams& p, float* scores) {
  const auto width = static_cast<int>(block_scores(p.cache));
  const Select args{matrix<const float>(p.q),
                    p.positions.row<const int>(0),
                    p.cache,
                    p.heads,
                    nm::inverse_root(p.cache.index_dim),
                    width,
                    scores,
                    p.blocks.cols,
                    matrix<int>(p.blocks)};
  const auto rows = static_cast<unsigned>(p.q.rows);
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(p.q.cols);
  allow_shared(score_blocks_kernel, bytes);
  launch(context, "select_blocks", score_blocks_kernel,
         {dim3(blocks_for(width, kThreads), rows), dim3(kThreads), bytes}, args);
  launch(context, "select_blocks", choose_blocks_kernel, {dim3(rows), dim3(kChooseThreads)}, args);
}

}  // namespace mererun::cuda
