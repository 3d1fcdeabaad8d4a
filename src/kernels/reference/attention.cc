#include "kernels/attention.h"

#include "kernels/numerics.h"
#include "kernels/reference/head_norm.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

/// Keys or values of one KV head in one page.
struct PageHead {
  std::int16_t* codes;  // [256][head_dim]
  float* scales;        // [256]
};

PageHead page_head(const KvLayerView& cache, std::size_t codes, std::size_t scales, int kv_head, int page) {
  std::byte* base = cache.pages[page];
  const std::int64_t slot = static_cast<std::int64_t>(kv_head) * kKvPagePositions;
  return {reinterpret_cast<std::int16_t*>(base + codes) + slot * cache.head_dim,
          reinterpret_cast<float*>(base + scales) + slot};
}

PageHead key_page(const KvLayerView& cache, int kv_head, int page) {
  return page_head(cache, cache.key_codes, cache.key_scales, kv_head, page);
}

PageHead value_page(const KvLayerView& cache, int kv_head, int page) {
  return page_head(cache, cache.value_codes, cache.value_scales, kv_head, page);
}

void append(PageHead page, int slot, const float* x, int dim) {
  page.scales[slot] = nm::quantise_head_vector(x, dim, page.codes + static_cast<std::int64_t>(slot) * dim);
}

void attention_prepare(const AttentionPrepareParams& p, const Scratch& scratch) {
  const int dim = p.cache.head_dim;
  for (int t = 0; t < p.k.rows; ++t) {
    const int position = p.positions.row<std::int32_t>(0)[t];
    for (int h = 0; h < p.query_heads(); ++h) {
      norm_and_rotate(p.q_gate.row<float>(t) + 2 * h * dim, p.q_norm.row<float>(0), dim, p.eps, p.rope,
                      position, p.q.row<float>(t) + h * dim);
    }
    const int page = position / kKvPagePositions;
    const int slot = position % kKvPagePositions;
    for (int h = 0; h < p.cache.kv_heads; ++h) {
      norm_and_rotate(p.k.row<float>(t) + h * dim, p.k_norm.row<float>(0), dim, p.eps, p.rope, position,
                      scratch.values);
      append(key_page(p.cache, h, page), slot, scratch.values, dim);
      append(value_page(p.cache, h, page), slot, p.v.row<float>(t) + h * dim, dim);
    }
  }
}

/// A partial softmax over some keys: maximum, sum of exponentials, weighted sum of values.
struct Partial {
  float m;
  float l;
  float* o;  // [head_dim]
};

/// Folds `next` into `left`, or takes it over if `left` is the first.
void fold(Partial& left, const Partial& next, bool first, int dim) {
  if (first) {
    left.m = next.m;
    left.l = next.l;
    for (int d = 0; d < dim; ++d) left.o[d] = next.o[d];
    return;
  }
  const nm::SoftmaxFold f = nm::fold_of(left.m, next.m);
  left.m = f.m;
  left.l = nm::fold_sum(left.l, next.l, f);
  for (int d = 0; d < dim; ++d) left.o[d] = nm::fold_sum(left.o[d], next.o[d], f);
}

/// Attention of one query over keys [first, first + count) of one tile; count <= 64. Keys past the row's own
/// position are no part of the sum.
void attend_tile(const AttendParams& p, const float* q, int kv_head, int first, int count, float* keys,
                 Partial& out) {
  const int dim = p.cache.head_dim;
  const int page = first / kKvPagePositions;  // a tile lies inside one page
  const int slot = first % kKvPagePositions;
  const PageHead k = key_page(p.cache, kv_head, page);
  const PageHead v = value_page(p.cache, kv_head, page);

  // Keys transposed to [head_dim][64]: the sums of several keys advance together, each in its own order.
  for (int j = 0; j < count; ++j) {
    const std::int16_t* code = k.codes + static_cast<std::int64_t>(slot + j) * dim;
    for (int d = 0; d < dim; ++d) keys[d * nm::kTilePositions + j] = static_cast<float>(code[d]);
  }
  float scores[nm::kTilePositions] = {};
  for (int d = 0; d < dim; ++d) {
    const float* column = keys + d * nm::kTilePositions;
    for (int j = 0; j < count; ++j) scores[j] = nm::fma_f32(q[d], column[j], scores[j]);
  }
  out.m = -__builtin_inff();
  for (int j = 0; j < count; ++j) {
    scores[j] = (scores[j] * k.scales[slot + j]) * p.scale_log2e;
    out.m = nm::max_f32(out.m, scores[j]);
  }
  out.l = 0;
  for (int d = 0; d < dim; ++d) out.o[d] = 0;
  for (int j = 0; j < count; ++j) {
    const float weight = nm::exp2_f32(scores[j] - out.m);
    out.l = out.l + weight;
    const float scaled = weight * v.scales[slot + j];
    const std::int16_t* code = v.codes + static_cast<std::int64_t>(slot + j) * dim;
    for (int d = 0; d < dim; ++d) out.o[d] = nm::fma_f32(scaled, static_cast<float>(code[d]), out.o[d]);
  }
}

void attend(const AttendParams& p, const Scratch& scratch) {
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  Partial tile{0, 0, scratch.values};
  Partial segment{0, 0, scratch.values + dim};
  Partial whole{0, 0, scratch.values + 2 * dim};
  float* keys = scratch.values + 3 * dim;
  for (int t = 0; t < p.q.rows; ++t) {
    const int visible = p.positions.row<std::int32_t>(0)[t] + 1;
    for (int h = 0; h < p.heads; ++h) {
      const float* q = p.q.row<float>(t) + h * dim;
      for (int first = 0; first < visible; first += nm::kTilePositions) {
        const int left = visible - first;
        attend_tile(p, q, h / group, first, left < nm::kTilePositions ? left : nm::kTilePositions, keys,
                    tile);
        fold(segment, tile, first % nm::kSegmentPositions == 0, dim);
        const int next = first + nm::kTilePositions;
        if (next % nm::kSegmentPositions == 0 || next >= visible) {
          fold(whole, segment, first < nm::kSegmentPositions, dim);
        }
      }
      const float* gate = p.q_gate.row<float>(t) + (2 * h + 1) * dim;
      float* out = p.out.row<float>(t) + h * dim;
      for (int d = 0; d < dim; ++d) out[d] = (whole.o[d] / whole.l) * nm::sigmoid_f32(gate[d]);
    }
  }
}

}  // namespace

void bind_attention(Loops& loops) {
  loops.attention_prepare = attention_prepare;
  loops.attend = attend;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
