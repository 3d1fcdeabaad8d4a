#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "cache/snapshot.h"

namespace mererun {

struct PrefixCacheCounters {
  std::int64_t hits = 0;  // lookups that found a prefix, exact ones included
  std::int64_t exact_hits = 0;
  std::int64_t misses = 0;
  std::int64_t stored_prefixes = 0;
  std::int64_t evictions = 0;
  std::int64_t reused_tokens = 0;
  std::int64_t stored_tokens = 0;
  std::map<std::string, std::int64_t, std::less<>> skipped_stores;  // by reason
};

/// What a lookup found, or why not.
struct PrefixMatch {
  std::shared_ptr<const Snapshot> snapshot;  // null: miss. Pinned while held.
  int common_tokens = 0;                     // longest common prefix with any stored sequence, stored or not
};

/// Snapshots of one model, found by the longest stored prefix of a prompt, within a byte budget.
///
/// Pages shared by several snapshots count once. Eviction: class from kInterval up to kSemantic, then least
/// recent use; a snapshot that someone holds is never evicted, and a store that does not fit is skipped.
/// Thread-safety: one thread at a time.
class PrefixCache {
 public:
  explicit PrefixCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  bool is_enabled() const { return budget_bytes_ > 0; }

  /// The longest stored sequence that is a prefix of `prompt`, in time linear in the prompt; marks it used.
  PrefixMatch lookup(std::span<const TokenId> prompt);

  /// True if a snapshot of exactly these ids is stored; marks it used.
  bool contains(std::span<const TokenId> ids);

  /// Stores a snapshot, evicting others where needed. A stored twin of the same ids is replaced if it lacks
  /// logits that the new one has. False if it was skipped; the reason is counted ("too-large", "budget",
  /// "disabled").
  bool store(std::shared_ptr<const Snapshot> snapshot);

  /// Counts a store that its owner left out, by reason ("cancelled", "vision").
  void count_skipped(std::string_view reason);
  void clear();

  std::size_t bytes() const { return bytes_; }
  std::size_t budget_bytes() const { return budget_bytes_; }
  std::size_t entries() const { return entries_.size(); }
  const PrefixCacheCounters& counters() const { return counters_; }

 private:
  struct Entry {
    std::shared_ptr<const Snapshot> snapshot;
    std::uint64_t hash = 0;
    std::uint64_t last_use = 0;
  };
  using Entries = std::vector<Entry>;

  std::size_t find(std::span<const TokenId> ids, std::uint64_t hash) const;
  std::size_t added_bytes(const Snapshot& snapshot) const;
  bool make_room(const Snapshot& snapshot);
  void erase(std::size_t index);
  void reindex(std::size_t index);

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t budget_bytes_;
  std::size_t bytes_ = 0;
  std::uint64_t clock_ = 0;
  Entries entries_;
  std::unordered_multimap<std::uint64_t, std::size_t> by_hash_;  // hash of all ids -> entry
  std::map<int, int> lengths_;                                   // stored lengths -> entries of that length
  std::unordered_map<const KvPage*, int> page_uses_;             // entries that refer to a page
  PrefixCacheCounters counters_;
};

}  // namespace mererun
