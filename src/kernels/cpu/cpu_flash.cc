// The ops that only Flash-Next uses: how their work is split.

#include <algorithm>
#include <bit>

#include "kernels/cpu/share.h"
#include "kernels/numerics.h"
#include "kernels/validate.h"

namespace mererun::cpu {
namespace {

/// The k blocks of highest score, lowest block on ties, ascending. Scores are never negative, so their bits
/// order them; the lower half of a key prefers lower blocks.
void choose_blocks(const float* scores, int count, int k, std::vector<std::uint64_t>& keys,
                   std::int32_t* blocks) {
  keys.resize(static_cast<std::size_t>(count));
  for (int b = 0; b < count; ++b)
    keys[static_cast<std::size_t>(b)] = static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(scores[b]))
                                            << 32 |
                                        (0xffffffffu - static_cast<std::uint32_t>(b));
  std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), std::greater<>());
  for (int i = 0; i < k; ++i)
    blocks[i] = static_cast<std::int32_t>(
        0xffffffffu - static_cast<std::uint32_t>(keys[static_cast<std::size_t>(i)] & 0xffffffffu));
  std::sort(blocks, blocks + k);
}

}  // namespace

void CpuOps::grouped_rms_norm(const GroupedRmsNormParams& p) {
  validate(p);
  share(p.x.rows * p.groups, static_cast<std::int64_t>(p.x.rows) * p.x.cols,
        [&](int begin, int end, int) { kernels_.grouped_rms_norm(p, begin, end); });
}

void CpuOps::stream_silu(const StreamSiluParams& p) {
  validate(p);
  share(p.x.rows, 4 * static_cast<std::int64_t>(p.x.rows) * p.x.cols,
        [&](int begin, int end, int) { kernels_.stream_silu(p, begin, end); });
}

void CpuOps::mix_streams(const MixStreamsParams& p) {
  validate(p);
  share_columns(p.out.rows, p.out.cols, 4 * static_cast<std::int64_t>(p.x.rows) * p.x.cols,
                [&](int t, int first, int last) { kernels_.mix_streams(p, t, first, last); });
}

void CpuOps::add_to_streams(const AddToStreamsParams& p) {
  validate(p);
  share(p.y.rows * kStreams, static_cast<std::int64_t>(p.streams.rows) * p.streams.cols,
        [&](int begin, int end, int) { kernels_.add_to_streams(p, begin, end); });
}

void CpuOps::ngram_gate(const NgramGateParams& p) {
  validate(p);
  share(p.value.rows * kStreams, static_cast<std::int64_t>(p.out.rows) * p.out.cols,
        [&](int begin, int end, int) { kernels_.ngram_gate(p, begin, end); });
}

void CpuOps::ngram_conv(const NgramConvParams& p) {
  validate(p);
  share_columns(p.inputs.rows, p.inputs.cols, 4 * static_cast<std::int64_t>(p.inputs.rows) * p.inputs.cols,
                [&](int t, int first, int last) { kernels_.ngram_conv(p, t, first, last); });
}

void CpuOps::index_prepare(const IndexPrepareParams& p) {
  validate(p);
  validate_contents(p);
  if (p.qk.rows == 0) return;
  reserve_workers({.head_dim = p.cache.index_dim});
  share(p.qk.rows * (p.heads + 1), 2 * static_cast<std::int64_t>(p.qk.rows) * p.qk.cols,
        [&](int begin, int end, int) { kernels_.index_append(p, begin, end); });
  const int first = p.positions.row<const std::int32_t>(0)[0];
  const int block = first / kIndexBlockPositions;
  const int blocks = (first + p.qk.rows) / kIndexBlockPositions - block;
  share(blocks, 2 * static_cast<std::int64_t>(blocks) * p.cache.index_dim,
        [&](int begin, int end, int w) { kernels_.index_pool(p, block + begin, block + end, worker(w)); });
}

void CpuOps::select_blocks(const SelectBlocksParams& p) {
  validate(p);
  validate_contents(p);
  if (p.q.rows == 0) return;
  const auto* positions = p.positions.row<const std::int32_t>(0);
  const int pages = positions[p.q.rows - 1] / kKvPagePositions + 1;
  const std::size_t width = static_cast<std::size_t>(pages) * kIndexPageBlocks;
  index_keys_.resize(static_cast<std::size_t>(pool_.size()));
  float* scores = index_scores_.get<float>(width * static_cast<std::size_t>(pool_.size()));
  const auto choose = [&](int t, const float* of_row, int w) {
    choose_blocks(of_row, (positions[t] + 1) / kIndexBlockPositions, p.blocks.cols,
                  index_keys_[static_cast<std::size_t>(w)], p.blocks.row<std::int32_t>(t));
  };
  if (p.q.rows >= 2 * pool_.size()) {
    pool_.parallel_for(p.q.rows, [&](std::int64_t begin, std::int64_t end, int w) {
      float* mine = scores + width * static_cast<std::size_t>(w);
      for (int t = static_cast<int>(begin); t < static_cast<int>(end); ++t) {
        kernels_.index_scores(p, t, 0, positions[t] / kKvPagePositions + 1, mine);
        choose(t, mine, w);
      }
    });
    return;
  }
  for (int t = 0; t < p.q.rows; ++t) {
    const int count = positions[t] / kKvPagePositions + 1;
    share(count, static_cast<std::int64_t>(count) * kIndexPageBlocks * p.q.cols,
          [&](int begin, int end, int) { kernels_.index_scores(p, t, begin, end, scores); });
    choose(t, scores, 0);
  }
}

void CpuOps::attend_blocks(const AttendBlocksParams& p) {
  validate(p);
  validate_contents(p);
  if (p.q.rows == 0) return;
  reserve_workers({.head_dim = p.cache.head_dim, .queries = p.heads / p.cache.kv_heads});
  gathered_.resize(static_cast<std::size_t>(pool_.size()));
  pool_.parallel_for(static_cast<std::int64_t>(p.q.rows) * p.cache.kv_heads, [&](std::int64_t begin,
                                                                                 std::int64_t end, int w) {
    GatheredHead& gathered = gathered_[static_cast<std::size_t>(w)];
    for (int item = static_cast<int>(begin); item < static_cast<int>(end); ++item) {
      const AttendParams row = gathered.gather(p, item / p.cache.kv_heads, item % p.cache.kv_heads);
      const std::int32_t last = row.positions.row<const std::int32_t>(0)[0];
      kernels_.attend({.params = &row,
                       .kv_head = 0,
                       .first_row = 0,
                       .last_row = 1,
                       .first_tile = 0,
                       .last_tile = last / numerics::kTilePositions + 1},
                      worker(w));
    }
  });
}

}  // namespace mererun::cpu
