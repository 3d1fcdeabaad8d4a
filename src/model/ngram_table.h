#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/table_reader.h"
#include "model/ngram_hash.h"
#include "tensor/linear_source.h"

namespace mererun {

/// The n-gram table as a checkpoint stores it: shards of consecutive rows. Only places in files are kept; the
/// data is never mapped into use.
struct HostNgramTable {
  NgramBuffers buffers;
  std::vector<TableShard> shards;
  std::int64_t rows_per_shard = 0;
  int width = 0;        // columns of a row
  LinearSource format;  // of every shard: format, bits, group, dtype; no data
  std::uint64_t bytes = 0;
  TableOptions options;
};

/// The hashed n-gram embedding: rows of token ids, fetched from disk.
///
/// Thread-safety: one thread at a time.
class NgramTable {
 public:
  /// Errors: those of TableReader.
  NgramTable(const FlashConfig& config, const HostNgramTable& host);

  const NgramHash& hash() const { return hash_; }
  int embed_dim() const { return hash_.rows_per_token() * width_; }

  /// Ids that a later pass will probably have, behind the context_tokens() ids `context`: their rows are read
  /// ahead. See TableReader::expect.
  void expect(std::span<const TokenId> context, std::span<const TokenId> ids);
  /// Starts fetching table rows; see TableReader::start.
  void start(std::span<const std::int64_t> rows) { reader_.start(rows); }
  /// Waits for the rows that were started: widened to f32, one after the other, `width` values each: fma(s,
  /// q, b), or the stored value. Valid until the next call. Errors: those of TableReader::finish.
  std::span<const float> finish(std::size_t rows);

  const TableStatistics& statistics() const { return reader_.statistics(); }

 private:
  void widen(const std::byte* row, float* out) const;

  int width_;
  LinearSource format_;
  NgramHash hash_;
  TableReader reader_;
  std::vector<std::int64_t> expected_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

}  // namespace mererun
