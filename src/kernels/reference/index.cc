#include "kernels/numerics.h"
#include "kernels/reference/head_norm.h"
#include "kernels/reference/loops.h"
#include "kernels/sparse_attention.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

float* pooled_page(const KvLayerView& cache, int block) {
  return reinterpret_cast<float*>(cache.pages[block / kIndexPageBlocks] + cache.index_pooled);
}

void append_raw(const KvLayerView& cache, int position, const float* key) {
  std::byte* page = cache.pages[position / kKvPagePositions];
  const int slot = position % kKvPagePositions;
  auto* codes = reinterpret_cast<std::int16_t*>(page + cache.index_codes) + slot * cache.index_dim;
  reinterpret_cast<float*>(page + cache.index_scales)[slot] =
      nm::quantise_head_vector(key, cache.index_dim, codes);
}

/// Pools one complete block. Uses 2 * index_dim values.
void pool_block(const IndexPrepareParams& p, int block, float* values) {
  const KvLayerView& cache = p.cache;
  const int dim = cache.index_dim;
  const std::byte* page = cache.pages[block / kIndexPageBlocks];
  const int slot = block % kIndexPageBlocks * kIndexBlockPositions;
  const auto* codes = reinterpret_cast<const std::int16_t*>(page + cache.index_codes) + slot * dim;
  const auto* scales = reinterpret_cast<const float*>(page + cache.index_scales) + slot;
  float* mean = values;
  float* key = values + dim;
  for (int d = 0; d < dim; ++d) {
    float raw[kIndexBlockPositions];
    for (int i = 0; i < kIndexBlockPositions; ++i)
      raw[i] = static_cast<float>(codes[i * dim + d]) * scales[i];
    mean[d] = ((raw[0] + raw[1]) + (raw[2] + raw[3])) * 0.25f;
  }
  norm_and_rotate(mean, p.k_norm.row<float>(0), dim, p.eps, p.rope, block * kIndexBlockPositions, key);
  float* pooled = pooled_page(cache, block) + block % kIndexPageBlocks;
  for (int d = 0; d < dim; ++d) pooled[d * kIndexPageBlocks] = key[d];
}

void index_prepare(const IndexPrepareParams& p, const Scratch& scratch) {
  const int dim = p.cache.index_dim;
  for (int t = 0; t < p.qk.rows; ++t) {
    const int position = p.positions.row<std::int32_t>(0)[t];
    for (int h = 0; h < p.heads; ++h)
      norm_and_rotate(p.qk.row<float>(t) + h * dim, p.q_norm.row<float>(0), dim, p.eps, p.rope, position,
                      p.q.row<float>(t) + h * dim);
    append_raw(p.cache, position, p.qk.row<float>(t) + p.heads * dim);
    if ((position + 1) % kIndexBlockPositions == 0)
      pool_block(p, position / kIndexBlockPositions, scratch.values);
  }
}

/// Score of one block; see SelectBlocksParams.
float score_block(const SelectBlocksParams& p, const float* q, int block) {
  const int dim = p.cache.index_dim;
  const float* key = pooled_page(p.cache, block) + block % kIndexPageBlocks;
  float total = 0;
  for (int h = 0; h < p.heads; ++h) {
    float dot = 0;
    for (int d = 0; d < dim; ++d) dot = nm::fma_f32(q[h * dim + d], key[d * kIndexPageBlocks], dot);
    total = total + (dot > 0.0f ? dot : 0.0f);
  }
  return total * nm::inverse_root(dim);
}

/// Repeatedly takes the best block that is left: the plainest form of the rule.
void choose(float* scores, int count, int k, std::int32_t* chosen) {
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (int b = 0; b < count; ++b)
      if (scores[b] >= 0.0f && (best < 0 || scores[b] > scores[best])) best = b;
    scores[best] = -1.0f;  // scores are never negative: taken
  }
  int written = 0;
  for (int b = 0; b < count; ++b)
    if (scores[b] < 0.0f) chosen[written++] = b;
}

void select_blocks(const SelectBlocksParams& p, const Scratch& scratch) {
  for (int t = 0; t < p.q.rows; ++t) {
    const int complete = (p.positions.row<std::int32_t>(0)[t] + 1) / kIndexBlockPositions;
    for (int b = 0; b < complete; ++b) scratch.values[b] = score_block(p, p.q.row<float>(t), b);
    choose(scratch.values, complete, p.blocks.cols, p.blocks.row<std::int32_t>(t));
  }
}

}  // namespace

void bind_index(Loops& loops) {
  loops.index_prepare = index_prepare;
  loops.select_blocks = select_blocks;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
