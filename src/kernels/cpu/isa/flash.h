#pragma once

// Streams, n-gram embedding and index of Flash-Next. Elementwise loops are the reference's; their arithmetic
// vectorises to the same bits.

#include "kernels/cpu/isa/attention.h"
#include "kernels/cpu/isa/common.h"
#include "kernels/cpu/isa/rows.h"

void grouped_rms_norm(const GroupedRmsNormParams& p, int begin, int end) {
  const int n = p.x.cols / p.groups;
  for (int item = begin; item < end; ++item) {
    const int t = item / p.groups;
    const std::int64_t first = static_cast<std::int64_t>(item % p.groups) * n;
    norm_run(line<const float>(p.x, t) + first, line<const float>(p.weight, 0) + first, n, p.eps,
             line<float>(p.out, t) + first);
  }
}

void stream_silu(const StreamSiluParams& p, int begin, int end) {
  for (int t = begin; t < end; ++t) {
    const float* x = line<const float>(p.x, t);
    float* out = line<float>(p.out, t);
    for (int i = 0; i < p.out.cols; ++i) out[i] = numerics::silu_f32(x[i] * 0.25f);
  }
}

void mix_streams(const MixStreamsParams& p, int t, int first, int last) {
  const std::int64_t n = p.out.cols;
  const float* x = line<const float>(p.x, t);
  const float* gate = line<const float>(p.gate, t);
  float* out = line<float>(p.out, t);
  for (int d = first; d < last; ++d) {
    const float a0 = numerics::sigmoid_f32(gate[d]) * x[d];
    const float a1 = numerics::sigmoid_f32(gate[n + d]) * x[n + d];
    const float a2 = numerics::sigmoid_f32(gate[2 * n + d]) * x[2 * n + d];
    const float a3 = numerics::sigmoid_f32(gate[3 * n + d]) * x[3 * n + d];
    out[d] = ((a0 + a1) + (a2 + a3)) * 0.25f;
  }
}

void add_to_streams(const AddToStreamsParams& p, int begin, int end) {
  const int n = p.y.cols;
  for (int item = begin; item < end; ++item) {
    const int t = item / kStreams;
    const int c = item % kStreams;
    const float strength = 2.0f * numerics::sigmoid_f32(line<const float>(p.inject, t)[c] * 0.25f);
    const float* y = line<const float>(p.y, t);
    float* stream = line<float>(p.streams, t) + static_cast<std::int64_t>(c) * n;
    for (int d = 0; d < n; ++d) stream[d] = numerics::fma_f32(strength, y[d], stream[d]);
  }
}

void ngram_gate(const NgramGateParams& p, int begin, int end) {
  const int n = p.value.cols;
  const float scale = numerics::inverse_root(n);
  for (int item = begin; item < end; ++item) {
    const int t = item / kStreams;
    const std::int64_t first = static_cast<std::int64_t>(item % kStreams) * n;
    const float* key = line<const float>(p.key, t) + first;
    const float* query = line<const float>(p.query, t) + first;
    const float s = numerics::sum_of_products(key, query, n) * scale;
    const float gate = numerics::sigmoid_f32(numerics::signed_root(s));
    const float* value = line<const float>(p.value, t);
    float* out = line<float>(p.out, t) + first;
    for (int d = 0; d < n; ++d) out[d] = gate * value[d];
  }
}

void ngram_conv(const NgramConvParams& p, int t, int first, int last) {
  constexpr int kBlock = 256;  // sums of a block of channels stay in the first-level cache
  const int taps = p.weight.rows;
  const float* gated = line<const float>(p.gated, t);
  float* residual = line<float>(p.residual, t);
  for (int base = first; base < last; base += kBlock) {
    float acc[kBlock] = {};
    const int count = smaller(kBlock, last - base);
    for (int j = 0; j < taps; ++j) {
      const int source = t - p.dilation * (taps - 1 - j);
      const float* x = (source >= 0 ? line<const float>(p.inputs, source)
                                    : line<const float>(p.window, source + p.window.rows)) +
                       base;
      const float* w = line<const float>(p.weight, j) + base;
      for (int i = 0; i < count; ++i) acc[i] = numerics::fma_f32(w[i], x[i], acc[i]);
    }
    for (int i = 0; i < count; ++i)
      residual[base + i] = residual[base + i] + (gated[base + i] + numerics::silu_f32(acc[i]));
  }
}

/// Items [begin, end): row t has `heads` index queries and one key.
void index_append(const IndexPrepareParams& p, int begin, int end) {
  const KvLayerView& cache = p.cache;
  const int dim = cache.index_dim;
  for (int item = begin; item < end; ++item) {
    const int t = item / (p.heads + 1);
    const int h = item % (p.heads + 1);
    const int position = line<const std::int32_t>(p.positions, 0)[t];
    const float* x = line<const float>(p.qk, t) + static_cast<std::int64_t>(h) * dim;
    if (h < p.heads) {
      norm_and_rotate(x, line<const float>(p.q_norm, 0), dim, p.eps, p.rope, position,
                      line<float>(p.q, t) + static_cast<std::int64_t>(h) * dim);
      continue;
    }
    std::byte* page = cache.pages[position / kKvPagePositions];
    const std::int64_t slot = position % kKvPagePositions;
    auto* codes = reinterpret_cast<std::int16_t*>(page + cache.index_codes) + slot * dim;
    reinterpret_cast<float*>(page + cache.index_scales)[slot] = numerics::quantise_head_vector(x, dim, codes);
  }
}

/// Pools complete blocks [begin, end).
void index_pool(const IndexPrepareParams& p, int begin, int end, WorkerScratch scratch) {
  const KvLayerView& cache = p.cache;
  const int dim = cache.index_dim;
  auto* mean = reinterpret_cast<float*>(scratch.data);
  float* key = mean + dim;
  for (int block = begin; block < end; ++block) {
    std::byte* page = cache.pages[block / kIndexPageBlocks];
    const std::int64_t slot = block % kIndexPageBlocks;
    const auto* codes =
        reinterpret_cast<const std::int16_t*>(page + cache.index_codes) + slot * kIndexBlockPositions * dim;
    const auto* scales =
        reinterpret_cast<const float*>(page + cache.index_scales) + slot * kIndexBlockPositions;
    for (int d = 0; d < dim; ++d) {
      const float a = static_cast<float>(codes[d]) * scales[0];
      const float b = static_cast<float>(codes[dim + d]) * scales[1];
      const float c = static_cast<float>(codes[2 * dim + d]) * scales[2];
      const float e = static_cast<float>(codes[3 * dim + d]) * scales[3];
      mean[d] = ((a + b) + (c + e)) * 0.25f;
    }
    norm_and_rotate(mean, line<const float>(p.k_norm, 0), dim, p.eps, p.rope, block * kIndexBlockPositions,
                    key);
    float* pooled = reinterpret_cast<float*>(page + cache.index_pooled) + slot;
    for (int d = 0; d < dim; ++d) pooled[static_cast<std::int64_t>(d) * kIndexPageBlocks] = key[d];
  }
}

/// Scores of all blocks of pages [begin, end) for row t, 64 a page.
void index_scores(const SelectBlocksParams& p, int t, int begin, int end, float* scores) {
  constexpr int kVectors = 4;  // sums of so many vectors of blocks advance together
  const int dim = p.cache.index_dim;
  const float* q = line<const float>(p.q, t);
  const FN scale = splat<FN>(numerics::inverse_root(dim));
  for (int page = begin; page < end; ++page) {
    const auto* pooled = reinterpret_cast<const float*>(p.cache.pages[page] + p.cache.index_pooled);
    for (int first = 0; first < kIndexPageBlocks; first += kVectors * kLanes) {
      FN total[kVectors];
      for (int i = 0; i < kVectors; ++i) total[i] = splat<FN>(0.0f);
      for (int h = 0; h < p.heads; ++h) {
        const float* head = q + static_cast<std::int64_t>(h) * dim;
        FN dot[kVectors];
        for (int i = 0; i < kVectors; ++i) dot[i] = splat<FN>(0.0f);
        for (int d = 0; d < dim; ++d) {
          const float* keys = pooled + static_cast<std::int64_t>(d) * kIndexPageBlocks + first;
          const FN x = splat<FN>(head[d]);
          for (int i = 0; i < kVectors; ++i) dot[i] = fma(x, load<FN>(keys + i * kLanes), dot[i]);
        }
        for (int i = 0; i < kVectors; ++i) total[i] = add(total[i], max_of(splat<FN>(0.0f), dot[i]));
      }
      float* out = scores + static_cast<std::int64_t>(page) * kIndexPageBlocks + first;
      for (int i = 0; i < kVectors; ++i) store(out + i * kLanes, mul(total[i], scale));
    }
  }
}
