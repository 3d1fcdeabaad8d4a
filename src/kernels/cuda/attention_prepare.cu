#include "kernels/cuda/attention.h"
#include "kernels/cuda/head_vector.cuh"

namespace mererun::cuda {

inline namespace attention_prepare_cu {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct Prepare {
  Matrix<const float> q_gate, k, v;
  Rotation rotation;
  const float *q_norm, *k_norm;
  const int* positions;
  int heads;
  float eps;
  Matrix<float> q;
  KvLayerView cache;
};

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
    norm_and_rotate(p.q_gate.row(t) + 2 * item * dim, p.q_norm, dim, p.eps, p.rotation, position, own);
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
    norm_and_rotate(p.k.row(t) + head * dim, p.k_norm, dim, p.eps, p.rotation, position, own);
    append_codes(page, p.cache.key_codes, p.cache.key_scales, slot, own, dim);
  } else {
    append_codes(page, p.cache.value_codes, p.cache.value_scales, slot, p.v.row(t) + head * dim, dim);
  }
}

}  // namespace attention_prepare_cu

void run_attention_prepare(const LaunchContext& context, const AttentionPrepareParams& p) {
  const Prepare args{matrix<const float>(p.q_gate),
                     matrix<const float>(p.k),
                     matrix<const float>(p.v),
                     rotation_of(p.rope),
                     p.q_norm.row<const float>(0),
                     p.k_norm.row<const float>(0),
                     p.positions.row<const int>(0),
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
