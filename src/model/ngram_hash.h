#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "model/config.h"

namespace mererun {

/// The integers that turn token ids into table rows.
struct NgramBuffers {
  std::vector<std::int64_t> multipliers;   // one per position of the longest n-gram
  std::vector<std::int64_t> head_sizes;    // rows of each head's part of the table: primes
  std::vector<std::int64_t> head_offsets;  // first row of each part
};

/// What a config implies: the first primes from ngram_vocab_base on, their prefix sums, and odd multipliers
/// from SplitMix64 of the seed. Files that store these integers must agree with it.
NgramBuffers make_ngram_buffers(const FlashConfig& config, int vocabulary);
/// Rows of the whole table: the heads' parts, padded to a multiple of ngram_vocab_multiple.
std::int64_t ngram_table_rows(const FlashConfig& config, const NgramBuffers& buffers);

/// Table rows of each token: hashes of the 2-gram, 3-gram, ... that end at it, `heads_per_ngram` rows each.
/// A context ends before the first earlier token that is end-of-text (or before the sequence): that token and
/// everything older counts as end-of-text. A token's own value never cuts its context.
/// Source: model-math "Flash-Next", n-gram embedding.
///
/// Thread-safety: immutable; thread-safe.
class NgramHash {
 public:
  NgramHash(const FlashConfig& config, NgramBuffers buffers);

  int rows_per_token() const { return static_cast<int>(buffers_.head_sizes.size()); }
  /// Ids before the first one that the rows depend on.
  int context_tokens() const { return size_ - 1; }

  /// Appends the rows of `ids` to `rows`, token after token. `context`: the context_tokens() ids before them,
  /// oldest first; end-of-text where there is none.
  void append_rows(std::span<const TokenId> context, std::span<const TokenId> ids,
                   std::vector<std::int64_t>& rows) const;

 private:
  int size_;
  int heads_per_size_;
  TokenId cut_;
  NgramBuffers buffers_;
};

}  // namespace mererun
