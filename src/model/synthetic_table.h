#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "model/ngram_table.h"

namespace mererun {

/// A table of random rows in a temporary file without a name: 4-bit codes with groups of 32, one shard,
/// written in parts.
struct SyntheticTable {
  HostNgramTable host;
  std::shared_ptr<const void> file;  // removes the file with its last copy
};

/// Makes the table that `config` implies, in the system's temporary folder. The bytes depend on config and
/// seed. Errors: kIo if it cannot be written; kCancelled once `cancelled` (may be null) is set.
SyntheticTable make_synthetic_table(const FlashConfig& config, int vocabulary, std::uint64_t seed,
                                    const std::atomic<bool>* cancelled = nullptr);

/// The ngram_vocab_base whose table, at 4 bits and groups of 32, takes about `bytes`.
int ngram_base_for_bytes(const FlashConfig& config, std::uint64_t bytes);

}  // namespace mererun
