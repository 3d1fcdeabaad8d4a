#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"
#include "cache/snapshot.h"

namespace mererun {

/// A slower place for snapshots behind the memory of a PrefixCache.
class SnapshotTier {
 public:
  /// What to look for.
  struct Query {
    std::span<const TokenId> prompt;
    int longer_than = 0;             // prefixes of at most this many tokens don't help
    bool needs_history = false;      // only snapshots with a whole draft history
    const Snapshot* base = nullptr;  // a shorter prefix at hand: its pages need not be read
  };
  struct Answer {
    std::shared_ptr<const Snapshot> snapshot;  // null: nothing longer
    int corrupt_entries = 0;                   // damaged ones that were dropped on the way
    bool is_of_other_model = false;            // the ids are stored, for another fingerprint or contract
    bool lacks_history = false;                // a longer prefix is stored without the history asked for
  };

  virtual ~SnapshotTier() = default;

  /// The longest stored prefix. Failures of the medium are misses, never errors. Called by the thread that
  /// owns the Ops.
  virtual Answer find(const Query& query) = 0;
  /// Keeps a snapshot, in the background where that takes time. False if it was busy and may be asked again.
  /// Called by the thread that owns the Ops.
  virtual bool offer(const std::shared_ptr<const Snapshot>& snapshot) = 0;
};

}  // namespace mererun
