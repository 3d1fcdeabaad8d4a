#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/types.h"
#include "cache/snapshot.h"
#include "cache/snapshot_tier.h"

namespace mererun {

struct PrefixCacheCounters {
  std::int64_t hits = 0;  // lookups that found a prefix, exact ones included
  std::int64_t exact_hits = 0;
  std::int64_t misses = 0;
  std::int64_t stored_prefixes = 0;
  std::int64_t evictions = 0;
  std::int64_t thinned = 0;  // entries of earlier turns that were let go while there was room
  std::int64_t reused_tokens = 0;
  std::int64_t stored_tokens = 0;
  std::int64_t disk_hits = 0;
  std::int64_t disk_corrupt = 0;  // damaged entries met and dropped
  std::int64_t compared_ids = 0;  // ids read to confirm matches and name limits
  std::map<std::string, std::int64_t, std::less<>> skipped_stores;  // by reason
};

/// What kept a lookup from reusing more.
enum class PrefixLimit {
  kNone,
  kEmpty,           // nothing in memory, and no prefix of the prompt in the tier behind it
  kNoCommonPrefix,  // no stored sequence begins like the prompt
  kDiverged,        // the best one leaves the prompt at `common_tokens`
  kEvicted,         // a prefix of the prompt was stored and had to go
  kCorrupt,         // a stored one was damaged
  kFingerprint,     // a stored one belongs to another checkpoint or numeric contract
  kNoHistory,       // a longer prefix is stored without the draft history asked for
};

/// What a lookup found.
struct PrefixMatch {
  std::shared_ptr<const Snapshot> snapshot;  // null: miss. Pinned while held.
  SnapshotClass kind = SnapshotClass::kPrompt;
  bool is_from_disk = false;
  PrefixLimit limit = PrefixLimit::kNone;
  int common_tokens = 0;  // longest common prefix of the prompt with any sequence in memory
};

/// Along a long sequence two neighbouring snapshots are at most this far apart, in tokens, so that whoever
/// leaves it computes fewer of the shared positions again.
inline constexpr int kSnapshotGapTokens = 4096;

/// Snapshots of one model, found by the longest stored prefix of a prompt, within a byte budget; behind them
/// optionally a slower tier.
///
/// Pages shared by several snapshots count once. Eviction: class from kInterval up to kSystem. Intervals
/// are thinned: of two, the one at the less round position goes first, so that the rest stays evenly spaced;
/// then, as in every class, least recent use. System parts are pinned in this way: they go when nothing else
/// is left, as long as they hold at most half of the budget; beyond that they count as kSemantic. A snapshot
/// that someone holds is never evicted, an interval never displaces another class, and a store that would not
/// fit is skipped before anything is evicted for it.
///
/// Earlier turns are thinned whether there is room or not, when the prompt of a later one is stored. Of the
/// stored prefixes of that prompt the last four that are no intervals stay, with all behind them. Of the
/// others one goes, unless it is a system part or held, if its neighbours are at most half of the shorter
/// one's length and kSnapshotGapTokens apart. What a turn before those four left beside the conversation
/// (its generation prompt, a reply that the template rewrites) goes too.
///
/// Thread-safety: thread-safe, except that `lookup` and `store` belong to the thread that owns the Ops.
class PrefixCache {
 public:
  explicit PrefixCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  /// Lookups go on to `tier` for a longer prefix, stores are offered to it. Before the first use.
  void attach(std::unique_ptr<SnapshotTier> tier) { tier_ = std::move(tier); }
  SnapshotTier* tier() const { return tier_.get(); }

  bool is_enabled() const { return budget_bytes_ > 0; }

  /// The longest stored sequence that is a prefix of `prompt`, in time linear in the prompt (naming where a
  /// longer one left it takes as much once more for each doubling of the entries); marks it and the stored
  /// prefixes on the way as used. `needs_history`: only snapshots with a whole draft history.
  PrefixMatch lookup(std::span<const TokenId> prompt, bool needs_history = false);

  /// What `lookup` would find in memory, to be held (and so pinned) until then; counts and marks nothing.
  std::shared_ptr<const Snapshot> peek(std::span<const TokenId> prompt, bool needs_history = false) const;

  /// True if storing these ids would add nothing; marks them used. `has_logits` and `has_history` say what
  /// the snapshot would hold. Spares the capture of a snapshot that is there.
  bool touch(std::span<const TokenId> ids, SnapshotClass kind, bool has_logits, bool has_history);

  /// Stores a snapshot, evicting others where needed. A twin of the same ids is replaced if the new one knows
  /// more (history, then logits); the pair keeps the better class. False if it was skipped from memory; the
  /// reason is counted ("too-large", "budget", "disabled"). `messages_end`: how many of its tokens are the
  /// messages that it answers, where a later turn may go on from those in other words; else 0.
  bool store(std::shared_ptr<const Snapshot> snapshot, int messages_end = 0);

  /// Counts a store that its owner left out, by reason ("cancelled", "vision", "disabled").
  void count_skipped(std::string_view reason);
  /// Drops everything in memory; the tier keeps what it has.
  void clear();

  std::size_t bytes() const;
  std::size_t budget_bytes() const { return budget_bytes_; }
  std::size_t entries() const;
  PrefixCacheCounters counters() const;

 private:
  struct Entry {
    std::shared_ptr<const Snapshot> snapshot;
    SnapshotClass kind = SnapshotClass::kInterval;
    std::uint64_t hash = 0;
    std::uint64_t last_use = 0;
    int messages_end = 0;             // tokens of the messages it answers; 0: unknown
    std::uint64_t messages_hash = 0;  // of those
    bool is_offered = false;          // the tier has it, or does not want it
  };
  struct IdsLess {
    using is_transparent = void;
    static std::span<const TokenId> ids(const Snapshot* s) { return s->ids(); }
    static std::span<const TokenId> ids(std::span<const TokenId> s) { return s; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return is_less(ids(a), ids(b));
    }
    bool is_less(std::span<const TokenId> a, std::span<const TokenId> b) const;
    std::int64_t* compared;
  };

  // Callers hold the mutex.
  std::vector<std::size_t> candidates(std::span<const TokenId> prompt) const;
  std::optional<std::size_t> find_longest(std::span<const TokenId> prompt, bool needs_history,
                                          const std::vector<std::size_t>& candidates) const;
  std::optional<std::size_t> find(std::span<const TokenId> ids, std::uint64_t hash) const;
  int count_common(std::span<const TokenId> a, std::span<const TokenId> b) const;
  int common_tokens(std::span<const TokenId> prompt) const;
  bool was_evicted(std::span<const TokenId> prompt) const;
  PrefixLimit limit_of(std::span<const TokenId> prompt, const PrefixMatch& match,
                       const SnapshotTier::Answer& answer) const;
  std::size_t added_bytes(const Snapshot& snapshot) const;
  bool may_evict(const Entry& entry, SnapshotClass for_kind) const;
  bool goes_before(const Entry& a, const Entry& b) const;
  bool can_fit(const Snapshot& snapshot, SnapshotClass kind, std::optional<std::size_t> twin) const;
  void make_room(const Snapshot& snapshot, SnapshotClass kind);
  void insert(std::shared_ptr<const Snapshot> snapshot, SnapshotClass kind, std::uint64_t hash,
              int messages_end);
  void erase(std::size_t index);
  void drop(std::size_t index);
  /// Drops what earlier turns of the newest prompt's conversation no longer need.
  void thin(const Snapshot& newest);
  void add_between(const std::vector<std::size_t>& path, int border,
                   std::vector<const Snapshot*>& dropped) const;
  void add_beside(std::span<const TokenId> prompt, int border, std::vector<const Snapshot*>& dropped) const;
  /// Keeps the better class.
  void mark_used(Entry& entry, SnapshotClass kind);
  void remember_evicted(std::uint64_t hash);
  void count_skipped_locked(std::string_view reason);
  bool store_in_memory(const std::shared_ptr<const Snapshot>& snapshot, int messages_end = 0);
  void offer(const std::shared_ptr<const Snapshot>& snapshot);

  const std::size_t budget_bytes_;
  std::unique_ptr<SnapshotTier> tier_;

  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::size_t system_bytes_ = 0;  // of kSystem entries, each with all of its pages
  std::uint64_t clock_ = 0;
  std::vector<Entry> entries_;
  std::unordered_multimap<std::uint64_t, std::size_t> by_hash_;  // hash of all ids -> entry
  std::map<int, int> lengths_;                                   // stored lengths -> entries of that length
  mutable std::int64_t compared_ids_ = 0;
  std::set<const Snapshot*, IdsLess> by_ids_{IdsLess{&compared_ids_}};  // in lexicographic order
  std::unordered_map<const KvPage*, int> page_uses_;                    // entries that refer to a page
  std::deque<std::uint64_t> evicted_order_;                             // hashes of the last evicted entries
  std::unordered_multiset<std::uint64_t> evicted_;
  PrefixCacheCounters counters_;
};

}  // namespace mererun
