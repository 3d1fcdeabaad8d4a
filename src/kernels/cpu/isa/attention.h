#pragma once

// Attention over the KV cache: one tile of 64 keys serves every query of its KV head before the next is read.

#include "kernels/cpu/isa/common.h"
#include "kernels/cpu/isa/rows.h"

constexpr int kTile = numerics::kTilePositions;
/// More queries than these compute for longer than a tile takes to arrive.
constexpr int kFetchQueries = 4 * kMaxQueries;

/// Keys or values of one KV head in one page.
struct PageHead {
  std::int16_t* codes;  // [256][head_dim]
  float* scales;        // [256]
};

MERERUN_VEC PageHead page_head(const KvLayerView& cache, std::size_t codes, std::size_t scales, int kv_head,
                               int page) {
  std::byte* base = cache.pages[page];
  const std::int64_t slot = static_cast<std::int64_t>(kv_head) * kKvPagePositions;
  return {reinterpret_cast<std::int16_t*>(base + codes) + slot * cache.head_dim,
          reinterpret_cast<float*>(base + scales) + slot};
}

/// RMS norm of one head, then the rotation of its first dims. `out` must not alias `x`.
MERERUN_VEC void norm_and_rotate(const float* x, const float* weight, int dim, float eps,
                                 const RopeView& rope, int position, float* out) {
  norm_run(x, weight, dim, eps, out);
  const int half = rope.rotary_dims / 2;
  const float* cosine = line<const float>(rope.cos, position);
  const float* sine = line<const float>(rope.sin, position);
  for (int i = 0; i < half; ++i) {
    const float first = out[i];
    const float second = out[i + half];
    out[i] = numerics::rotate_first(first, second, cosine[i], sine[i]);
    out[i + half] = numerics::rotate_second(first, second, cosine[i], sine[i]);
  }
}

void attention_prepare(const AttentionPrepareParams& p, int begin, int end, WorkerScratch scratch) {
  const KvLayerView& cache = p.cache;
  const int dim = cache.head_dim;
  const int query_heads = p.query_heads();
  const int items = query_heads + cache.kv_heads;
  auto* rotated = reinterpret_cast<float*>(scratch.data);
  for (int item = begin; item < end; ++item) {
    const int t = item / items;
    int h = item % items;
    const int position = line<const std::int32_t>(p.positions, 0)[t];
    if (h < query_heads) {
      norm_and_rotate(line<const float>(p.q_gate, t) + 2 * static_cast<std::int64_t>(h) * dim,
                      line<const float>(p.q_norm, 0), dim, p.eps, p.rope, position,
                      line<float>(p.q, t) + static_cast<std::int64_t>(h) * dim);
      continue;
    }
    h -= query_heads;
    const int page = position / kKvPagePositions;
    const std::int64_t slot = position % kKvPagePositions;
    norm_and_rotate(line<const float>(p.k, t) + static_cast<std::int64_t>(h) * dim,
                    line<const float>(p.k_norm, 0), dim, p.eps, p.rope, position, rotated);
    const PageHead k = page_head(cache, cache.key_codes, cache.key_scales, h, page);
    const PageHead v = page_head(cache, cache.value_codes, cache.value_scales, h, page);
    k.scales[slot] = numerics::quantise_head_vector(rotated, dim, k.codes + slot * dim);
    v.scales[slot] = numerics::quantise_head_vector(
        line<const float>(p.v, t) + static_cast<std::int64_t>(h) * dim, dim, v.codes + slot * dim);
  }
}

/// A partial softmax of one query: maximum, sum of exponentials, then head_dim weighted sums of values.
struct Partial {
  float* at;
  MERERUN_VEC float& m() const { return at[0]; }
  MERERUN_VEC float& l() const { return at[1]; }
  MERERUN_VEC float* o() const { return at + 2; }
};

/// Folds `next` into `left`, or takes it over if `left` is the first.
MERERUN_VEC void fold(Partial left, Partial next, bool first, int dim) {
  if (first) {
    for (int i = 0; i < dim + 2; ++i) left.at[i] = next.at[i];
    return;
  }
  const numerics::SoftmaxFold f = numerics::fold_of(left.m(), next.m());
  left.m() = f.m;
  left.l() = numerics::fold_sum(left.l(), next.l(), f);
  for (int d = 0; d < dim; ++d) left.o()[d] = numerics::fold_sum(left.o()[d], next.o()[d], f);
}

/// 64 keys and values of one KV head as they are stored.
struct StoredTile {
  const std::int16_t* keys;  // [64][head_dim]
  const float* key_scales;
  const std::int16_t* values;  // [64][head_dim]
  const float* value_scales;

  /// first: a multiple of 64; a tile lies inside one page.
  MERERUN_VEC StoredTile(const KvLayerView& cache, int kv_head, int first) {
    const std::int64_t slot = first % kKvPagePositions;
    const PageHead k = page_head(cache, cache.key_codes, cache.key_scales, kv_head, first / kKvPagePositions);
    const PageHead v =
        page_head(cache, cache.value_codes, cache.value_scales, kv_head, first / kKvPagePositions);
    keys = k.codes + slot * cache.head_dim;
    key_scales = k.scales + slot;
    values = v.codes + slot * cache.head_dim;
    value_scales = v.scales + slot;
  }
};

/// The tile all queries of a job are looking at.
struct KeyTile {
  const float* keys;  // [head_dim][64] codes as floats
  StoredTile stored;
  StoredTile next;  // fetched meanwhile: few queries are done with a tile before another comes from far away
  int dim;
  float scale_log2e;
  bool first_of_segment;
};

MERERUN_VEC void fetch_soon(const std::int16_t* codes) { __builtin_prefetch(codes, 0, 2); }

/// One query of a tile: its row's number of visible keys in it (1..64) and its segment's sums.
struct TileQuery {
  const float* q;
  int live;
  Partial segment;
};

template <int kQueries, int kVectors>
MERERUN_VEC void score_keys(const KeyTile& tile, const TileQuery* queries, int key, float (*scores)[kTile]) {
  FN acc[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kVectors; ++i) acc[r][i] = splat<FN>(0.0f);
  }
  const std::int16_t* next = tile.next.keys + static_cast<std::int64_t>(key) * tile.dim;
  for (int d = 0; d < tile.dim; ++d) {
    fetch_soon(next + static_cast<std::int64_t>(d) * kVectors * kLanes);
    FN k[kVectors];
    for (int i = 0; i < kVectors; ++i) k[i] = load<FN>(tile.keys + d * kTile + key + i * kLanes);
    for (int r = 0; r < kQueries; ++r) {
      const FN q = splat<FN>(queries[r].q[d]);
      for (int i = 0; i < kVectors; ++i) acc[r][i] = fma(q, k[i], acc[r][i]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kVectors; ++i) store(scores[r] + key + i * kLanes, acc[r][i]);
  }
}

template <int kQueries, int kVectors>
MERERUN_VEC void sum_values(const KeyTile& tile, const TileQuery* queries, int keys, int dim,
                            const float (*weights)[kTile], const numerics::SoftmaxFold* folds) {
  FN acc[kQueries][kVectors];
  for (int r = 0; r < kQueries; ++r) {
    for (int i = 0; i < kVectors; ++i) acc[r][i] = splat<FN>(0.0f);
  }
  const std::int16_t* next = tile.next.values + static_cast<std::int64_t>(dim) * kTile;
  for (int j = 0; j < keys; ++j) {
    fetch_soon(next + static_cast<std::int64_t>(j) * kVectors * kLanes);
    FN v[kVectors];
    const std::int16_t* codes = tile.stored.values + static_cast<std::int64_t>(j) * tile.dim + dim;
    for (int i = 0; i < kVectors; ++i) v[i] = load_codes_n(codes + i * kLanes);
    for (int r = 0; r < kQueries; ++r) {
      const FN w = splat<FN>(weights[r][j]);
      for (int i = 0; i < kVectors; ++i) acc[r][i] = fma(w, v[i], acc[r][i]);
    }
  }
  for (int r = 0; r < kQueries; ++r) {
    float* o = queries[r].segment.o() + dim;
    for (int i = 0; i < kVectors; ++i) {
      FN sum = acc[r][i];
      if (!tile.first_of_segment) {
        sum = fma(load<FN>(o + i * kLanes), splat<FN>(folds[r].keep), mul(sum, splat<FN>(folds[r].add)));
      }
      store(o + i * kLanes, sum);
    }
  }
}

/// The dims past the last whole vector.
MERERUN_VEC void sum_value_tail(const KeyTile& tile, TileQuery query, int keys, int dim, const float* weights,
                                numerics::SoftmaxFold f) {
  float sum = 0;
  for (int j = 0; j < keys; ++j) {
    sum = numerics::fma_f32(
        weights[j], static_cast<float>(tile.stored.values[static_cast<std::int64_t>(j) * tile.dim + dim]),
        sum);
  }
  float& o = query.segment.o()[dim];
  o = tile.first_of_segment ? sum : numerics::fold_sum(o, sum, f);
}

/// Turns dot products with key codes into scores and returns the largest of the live ones. A maximum does not
/// depend on the order, so lanes may find it.
MERERUN_VEC float scale_scores(const KeyTile& tile, int live, float* scores) {
  FN most = splat<FN>(-__builtin_inff());
  int j = 0;
  for (; j + kLanes <= live; j += kLanes) {
    const FN s =
        mul(mul(load<FN>(scores + j), load<FN>(tile.stored.key_scales + j)), splat<FN>(tile.scale_log2e));
    store(scores + j, s);
    most = max_of(most, s);
  }
  float lanes[kLanes];
  store(lanes, most);
  for (int i = 1; i < kLanes; ++i) lanes[0] = numerics::max_f32(lanes[0], lanes[i]);
  for (; j < live; ++j) {
    scores[j] = (scores[j] * tile.stored.key_scales[j]) * tile.scale_log2e;
    lanes[0] = numerics::max_f32(lanes[0], scores[j]);
  }
  return lanes[0];
}

/// Scores, softmax and values of one tile for kQueries queries, folded into their segments.
template <int kQueries>
[[gnu::noinline]] void attend_tile(const KeyTile& tile, const TileQuery* queries) {
  alignas(64) float scores[kQueries][kTile];
  int keys = 0;
  for (int r = 0; r < kQueries; ++r) keys = larger(keys, queries[r].live);
  constexpr int kStep = kAttentionVectors * kLanes;
  for (int key = 0; key < keys; key += kStep)
    score_keys<kQueries, kAttentionVectors>(tile, queries, key, scores);

  numerics::SoftmaxFold folds[kQueries];
  float most[kQueries], sums[kQueries];
  for (int r = 0; r < kQueries; ++r) {
    const int live = queries[r].live;
    most[r] = scale_scores(tile, live, scores[r]);
    sums[r] = 0;
    for (int j = 0; j < live; ++j) scores[r][j] = numerics::exp2_f32(scores[r][j] - most[r]);
    for (int j = live; j < keys; ++j) scores[r][j] = 0;  // keys a later row sees: they add nothing here
  }
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < kQueries; ++r) sums[r] = sums[r] + scores[r][j];
  }
  for (int r = 0; r < kQueries; ++r) {
    for (int j = 0; j < queries[r].live; ++j) scores[r][j] = scores[r][j] * tile.stored.value_scales[j];
    const Partial segment = queries[r].segment;
    folds[r] = {most[r], 0, 0};
    if (!tile.first_of_segment) {
      folds[r] = numerics::fold_of(segment.m(), most[r]);
      sums[r] = numerics::fold_sum(segment.l(), sums[r], folds[r]);
    }
    segment.m() = folds[r].m;
    segment.l() = sums[r];
  }
  int dim = 0;
  for (; dim + kStep <= tile.dim; dim += kStep)
    sum_values<kQueries, kAttentionVectors>(tile, queries, keys, dim, scores, folds);
  for (; dim + kLanes <= tile.dim; dim += kLanes)
    sum_values<kQueries, 1>(tile, queries, keys, dim, scores, folds);
  for (; dim < tile.dim; ++dim) {
    for (int r = 0; r < kQueries; ++r) sum_value_tail(tile, queries[r], keys, dim, scores[r], folds[r]);
  }
}

/// In groups that fit the registers, as even as may be: a group of few computes slowly.
void attend_queries(const KeyTile& tile, const TileQuery* queries, int count) {
  for (int groups = (count + kMaxQueries - 1) / kMaxQueries; groups > 0; --groups) {
    const int n = (count + groups - 1) / groups;
    switch (n) {
      case 1: attend_tile<1>(tile, queries); break;
      case 2: attend_tile<2>(tile, queries); break;
      case 3: attend_tile<3>(tile, queries); break;
      case 4: attend_tile<4>(tile, queries); break;
      case 5: attend_tile<5>(tile, queries); break;
      case 6: attend_tile<6>(tile, queries); break;
      case 7: attend_tile<(kMaxQueries < 7 ? kMaxQueries : 7)>(tile, queries); break;
      default: attend_tile<kMaxQueries>(tile, queries); break;
    }
    queries += n;
    count -= n;
  }
}

/// keys[d][j] = float(codes[j][d]) for the first `count` keys of a tile, rounded up to whole vectors: the
/// tile's page holds 64 keys, and no query looks past its own.
MERERUN_VEC void transpose_keys(const std::int16_t* codes, int dim, int count, float* keys) {
  for (int j = 0; j < count; j += kLanes) {
    const std::int16_t* from = codes + static_cast<std::int64_t>(j) * dim;
    int d = 0;
    for (; d + 2 * kLanes <= dim; d += 2 * kLanes)
      transpose_codes(from + d, dim, keys + d * kTile + j, kTile);
    for (; d < dim; ++d) {
      for (int i = 0; i < kLanes; ++i) keys[d * kTile + j + i] = static_cast<float>(from[i * dim + d]);
    }
  }
}

void write_query(const AttendJob& job, int query, Partial whole) {
  const AttendParams& p = *job.params;
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  const int t = job.first_row + query / group;
  const std::int64_t h = job.kv_head * group + query % group;
  const float* gate = line<const float>(p.q_gate, t) + (2 * h + 1) * dim;
  float* out = line<float>(p.out, t) + h * dim;
  const float l = whole.l();
  for (int d = 0; d < dim; ++d) out[d] = (whole.o()[d] / l) * numerics::sigmoid_f32(gate[d]);
}

/// Scratch of attend: [head_dim][64] keys, then per query a segment, a whole, and a TileQuery.
struct AttendScratch {
  float* keys;
  float* segments;
  float* wholes;
  TileQuery* queries;

  MERERUN_VEC AttendScratch(std::byte* data, int dim, int count) {
    const std::int64_t partial = dim + 2;
    keys = reinterpret_cast<float*>(data);
    queries = reinterpret_cast<TileQuery*>(keys + static_cast<std::int64_t>(dim) * kTile);
    segments = reinterpret_cast<float*>(queries + count);
    wholes = segments + count * partial;
  }
};

/// Scores and values of one tile for the queries that see it: those of the last rows. `sums` [queries] is
/// the partial it is folded into; `starts`: the tile is the first there.
MERERUN_VEC void attend_one_tile(const AttendJob& job, const AttendScratch& scratch, int index, float* sums,
                                 bool starts) {
  const AttendParams& p = *job.params;
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  const int count = (job.last_row - job.first_row) * group;
  const std::int32_t* positions = line<const std::int32_t>(p.positions, 0);
  const int first = index * kTile;
  const StoredTile stored(p.cache, job.kv_head, first);
  const bool fetches = index + 1 < job.last_tile && count <= kFetchQueries;
  const StoredTile next = fetches ? StoredTile(p.cache, job.kv_head, first + kTile) : stored;
  transpose_keys(stored.keys, dim, smaller(kTile, positions[job.last_row - 1] + 1 - first), scratch.keys);
  int live = 0;
  for (int i = 0; i < count; ++i) {
    const int t = job.first_row + i / group;
    if (positions[t] < first) continue;
    const std::int64_t head = job.kv_head * group + i % group;
    scratch.queries[live++] = {line<const float>(p.q, t) + head * dim,
                               smaller(kTile, positions[t] + 1 - first),
                               Partial{sums + static_cast<std::int64_t>(i) * (dim + 2)}};
  }
  attend_queries({scratch.keys, stored, next, dim, p.scale_log2e, starts}, scratch.queries, live);
}

void attend(const AttendJob& job, WorkerScratch worker) {
  const AttendParams& p = *job.params;
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  const int count = (job.last_row - job.first_row) * group;
  const std::int64_t partial = dim + 2;
  constexpr int kTiles = numerics::kSegmentTiles;
  const AttendScratch scratch(worker.data, dim, count);
  const std::int32_t* positions = line<const std::int32_t>(p.positions, 0);
  for (int index = job.first_tile; index < job.last_tile; ++index) {
    const int segment = index / kTiles;
    if (job.segments != nullptr) {
      float* own = job.loose[index];
      float* sums = own != nullptr ? own : job.segments + segment * count * partial;
      attend_one_tile(job, scratch, index, sums, own != nullptr || index % kTiles == 0);
      continue;
    }
    attend_one_tile(job, scratch, index, scratch.segments, index % kTiles == 0);
    if (index + 1 < job.last_tile && (index + 1) % kTiles != 0) continue;
    for (int i = 0; i < count; ++i) {
      if (positions[job.first_row + i / group] < segment * numerics::kSegmentPositions) continue;
      fold(Partial{scratch.wholes + i * partial}, Partial{scratch.segments + i * partial}, segment == 0, dim);
    }
  }
  if (job.segments != nullptr) return;
  for (int i = 0; i < count; ++i) write_query(job, i, Partial{scratch.wholes + i * partial});
}

void fold_segments(const AttendJob& job, int begin, int end, WorkerScratch worker) {
  const AttendParams& p = *job.params;
  const int dim = p.cache.head_dim;
  const int group = p.heads / p.cache.kv_heads;
  const std::int64_t count = (job.last_row - job.first_row) * group;
  constexpr int kTiles = numerics::kSegmentTiles;
  const Partial whole{reinterpret_cast<float*>(worker.data)};
  for (int i = begin; i < end; ++i) {
    const int tiles = line<const std::int32_t>(p.positions, 0)[job.first_row + i / group] / kTile + 1;
    for (int s = 0; s * kTiles < tiles; ++s) {
      const Partial segment{job.segments + (s * count + i) * (dim + 2)};
      for (int tile = s * kTiles; tile < smaller((s + 1) * kTiles, tiles); ++tile) {
        if (job.loose[tile] == nullptr) continue;
        fold(segment, Partial{job.loose[tile] + static_cast<std::int64_t>(i) * (dim + 2)}, false, dim);
      }
      fold(whole, segment, s == 0, dim);
    }
    write_query(job, i, whole);
  }
}
