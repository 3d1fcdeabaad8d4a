#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.cuh"
#include "kernels/numerics.h"

namespace mererun::cuda {

namespace {

namespace nm = numerics;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Prepare {
  Matrix<const float> q_gate, k, v, cosine, sine;
  const float *q_norm, *k_norm;
  const int* positions;
  int half, heads;  // half of the rotated dims
  float eps;
  Matrix<float> q;
  KvLayerView cache;
};

/// RMS norm of one head, then the rotation of its first dims, by one warp into its shared memory.
__device__ void norm_and_rotate(const Prepare& p, const float* x, const float* weight, int position,
                                float* out) {
  const int dim = p.cache.head_dim;
  const int lane = static_cast<int>(threadIdx.x & 31);
  const float sum = warp_reduce(dim, [&](float acc, int i) { return nm::fma_f32(x[i], x[i], acc); });
  const float r = nm::rsqrt_f32(sum / static_cast<float>(dim) + p.eps);
  for (int i = lane; i < dim; i += 32) out[i] = (x[i] * r) * weight[i];
  __syncwarp();
  const float* cosine = p.cosine.row(position);
  const float* sine = p.sine.row(position);
  for (int i = lane; i < p.half; i += 32) {
    const float first = out[i];
    const float second = out[i + p.half];
    out[i] = nm::rotate_first(first, second, cosine[i], sine[i]);
    out[i + p.half] = nm::rotate_second(first, second, cosine[i], sine[i]);
  }
  __syncwarp();
}

/// Rounds one head vector into its slot, by one warp.
__device__ void append(std::byte* page, std::size_t codes, std::size_t scales, int slot, const float* x,
                       int dim) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  std::uint32_t most = 0;
  for (int i = lane; i < dim; i += 32) {
    const std::uint32_t u = nm::bits_of(x[i]) & 0x7fffffffu;
    most = u > most ? u : most;
  }
  const nm::CodeScale scale = nm::code_scale(warp_max(most));
  auto* to = reinterpret_cast<std::int16_t*>(page + codes) + static_cast<std::int64_t>(slot) * dim;
  for (int i = lane; i < dim; i += 32) to[i] = nm::code_of(x[i], scale);
  if (lane == 0) reinterpret_cast<float*>(page + scales)[slot] = scale.scale;
}

/// One warp: a query head, a key head or a value head of one row.
__global__ void __launch_bounds__(kThreads) attention_prepare_kernel(Prepare p) {
  extern __shared__ float heads_shared[];
  wait_for_predecessor();
  let_successor_start();
  const int dim = p.cache.head_dim;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int t = static_cast<int>(blockIdx.y);
  int item = static_cast<int>(blockIdx.x) * kWarps + warp;
  const int position = p.positions[t];
  float* own = heads_shared + warp * dim;
  if (item < p.heads) {
    norm_and_rotate(p, p.q_gate.row(t) + 2 * item * dim, p.q_norm, position, own);
    float* to = p.q.row(t) + item * dim;
    for (int i = static_cast<int>(threadIdx.x & 31); i < dim; i += 32) to[i] = own[i];
    return;
  }
  item -= p.heads;
  if (item >= 2 * p.cache.kv_heads) return;
  const bool is_key = item < p.cache.kv_heads;
  const int head = is_key ? item : item - p.cache.kv_heads;
  std::byte* page = p.cache.pages[position / kKvPagePositions];
  const int slot = head * kKvPagePositions + position % kKvPagePositions;
  if (is_key) {
    norm_and_rotate(p, p.k.row(t) + head * dim, p.k_norm, position, own);
    append(page, p.cache.key_codes, p.cache.key_scales, slot, own, dim);
  } else {
    append(page, p.cache.value_codes, p.cache.value_scales, slot, p.v.row(t) + head * dim, dim);
  }
}

}  // namespace

void run_attention_prepare(const LaunchContext& context, const AttentionPrepareParams& p) {
  const Prepare args{matrix<const float>(p.q_gate),
                     matrix<const float>(p.k),
                     matrix<const float>(p.v),
                     matrix<const float>(p.rope.cos),
                     matrix<const float>(p.rope.sin),
                     p.q_norm.row<const float>(0),
                     p.k_norm.row<const float>(0),
                     p.positions.row<const int>(0),
                     p.rope.rotary_dims / 2,
                     p.query_heads(),
                     p.eps,
                     matrix<float>(p.q),
                     p.cache};
  const int items = p.query_heads() + 2 * p.cache.kv_heads;
  const std::size_t bytes = sizeof(float) * kWarps * static_cast<std::size_t>(p.cache.head_dim);
  allow_shared(attention_prepare_kernel, bytes);
  launch(context, "attention_prepare", attention_prepare_kernel,
         {dim3(blocks_for(items, kWarps), static_cast<unsigned>(p.k.rows)), dim3(kThreads), bytes}, args);
}

}  // namespace mererun::cuda
