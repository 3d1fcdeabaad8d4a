#include "cache/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "cache/token_hash.h"

namespace mererun {
namespace {

constexpr std::size_t kRememberedEvictions = 4096;
// Ends of messages, prompts and replies that stay at the end of a conversation: two turns' worth where each
// leaves a prompt and a reply, one where it leaves the ends of its messages too.
constexpr int kRecentEnds = 4;

int common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int>(x - a.begin());
}

/// What a snapshot knows beyond its tokens, as a rank: history counts more than logits.
int rank_of(bool has_history, bool has_logits) { return (has_history ? 2 : 0) + (has_logits ? 1 : 0); }
int rank_of(const Snapshot& s) { return rank_of(s.has_whole_history(), !s.logits().empty()); }

/// Bytes of a snapshot with every page it refers to.
std::size_t whole_bytes(const Snapshot& snapshot) {
  std::size_t bytes = snapshot.exclusive_bytes();
  for (const KvPageRef& page : snapshot.pages()) bytes += page->bytes.size_bytes();
  return bytes;
}

}  // namespace

/// Entries whose hash says that they are a prefix of the prompt, shortest first.
std::vector<std::size_t> PrefixCache::candidates(std::span<const TokenId> prompt) const {
  std::vector<std::size_t> found;
  std::uint64_t hash = 0;
  auto next_length = lengths_.begin();
  for (std::size_t i = 0; i < prompt.size() && next_length != lengths_.end(); ++i) {
    hash = extend_hash(hash, prompt[i]);
    const int length = static_cast<int>(i) + 1;
    if (next_length->first != length) continue;
    ++next_length;
    const auto [begin, end] = by_hash_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (entries_[it->second].snapshot->length() == length) found.push_back(it->second);
  }
  return found;
}

/// The longest candidate whose ids are confirmed: each id of the prompt is compared once for a true match,
/// and a false one costs no more than the ids it shares.
std::optional<std::size_t> PrefixCache::find_longest(std::span<const TokenId> prompt, bool needs_history,
                                                     const std::vector<std::size_t>& found) const {
  for (auto it = found.rbegin(); it != found.rend(); ++it) {
    const Snapshot& s = *entries_[*it].snapshot;
    if (needs_history && !s.has_whole_history()) continue;
    if (count_common(prompt, s.ids()) == s.length()) return *it;
  }
  return std::nullopt;
}

std::optional<std::size_t> PrefixCache::find(std::span<const TokenId> ids, std::uint64_t hash) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const auto stored = entries_[it->second].snapshot->ids();
    if (std::equal(stored.begin(), stored.end(), ids.begin(), ids.end())) return it->second;
  }
  return std::nullopt;
}

int PrefixCache::count_common(std::span<const TokenId> a, std::span<const TokenId> b) const {
  const int common = common_prefix(a, b);
  compared_ids_ += common + 1;
  return common;
}

bool PrefixCache::IdsLess::is_less(std::span<const TokenId> a, std::span<const TokenId> b) const {
  const auto at = static_cast<std::size_t>(common_prefix(a, b));
  *compared += static_cast<std::int64_t>(at) + 1;
  if (at == b.size()) return false;
  return at == a.size() || a[at] < b[at];
}

/// Stored sequences are kept in lexicographic order: the one that shares most with the prompt is a neighbour
/// of its place.
int PrefixCache::common_tokens(std::span<const TokenId> prompt) const {
  const auto above = by_ids_.lower_bound(prompt);
  int common = 0;
  if (above != by_ids_.end()) common = count_common(prompt, (*above)->ids());
  if (above != by_ids_.begin()) common = std::max(common, count_common(prompt, (*std::prev(above))->ids()));
  return common;
}

bool PrefixCache::was_evicted(std::span<const TokenId> prompt) const {
  if (evicted_.empty()) return false;
  std::uint64_t hash = 0;
  for (const TokenId id : prompt) {
    hash = extend_hash(hash, id);
    if (evicted_.contains(hash)) return true;
  }
  return false;
}

PrefixLimit PrefixCache::limit_of(std::span<const TokenId> prompt, const PrefixMatch& match,
                                  const SnapshotTier::Answer& answer) const {
  if (answer.corrupt_entries > 0) return PrefixLimit::kCorrupt;
  if (answer.lacks_history) return PrefixLimit::kNoHistory;
  if (match.snapshot)
    return match.common_tokens > match.snapshot->length() ? PrefixLimit::kDiverged : PrefixLimit::kNone;
  if (answer.is_of_other_model) return PrefixLimit::kFingerprint;
  if (was_evicted(prompt)) return PrefixLimit::kEvicted;
  if (entries_.empty()) return PrefixLimit::kEmpty;
  return match.common_tokens == 0 ? PrefixLimit::kNoCommonPrefix : PrefixLimit::kDiverged;
}

PrefixMatch PrefixCache::lookup(std::span<const TokenId> prompt, bool needs_history) {
  PrefixMatch match;
  if (!is_enabled()) return match;
  int lacking = 0;  // tokens of the longest prefix in memory without the history asked for
  {
    const std::lock_guard lock(mutex_);
    const std::vector<std::size_t> found = candidates(prompt);
    const std::optional<std::size_t> best = find_longest(prompt, needs_history, found);
    if (best) {
      for (const std::size_t i : found) entries_[i].last_use = ++clock_;
      match.snapshot = entries_[*best].snapshot;
      match.kind = entries_[*best].kind;
    }
    for (const std::size_t i : found)
      if (needs_history && !entries_[i].snapshot->has_whole_history())
        lacking = entries_[i].snapshot->length();
    match.common_tokens = common_tokens(prompt);
  }
  offer(match.snapshot);
  const int in_memory = match.snapshot ? match.snapshot->length() : 0;
  SnapshotTier::Answer answer;
  if (tier_ && in_memory < static_cast<int>(prompt.size())) {
    answer = tier_->find({prompt, in_memory, needs_history, match.snapshot.get()});
    if (answer.snapshot) {
      match.snapshot = answer.snapshot;
      match.kind = answer.snapshot->kind();
      match.is_from_disk = true;
      store_in_memory(answer.snapshot);
    }
  }
  const int length = match.snapshot ? match.snapshot->length() : 0;
  answer.lacks_history |= lacking > length;
  const std::lock_guard lock(mutex_);
  match.limit = limit_of(prompt, match, answer);
  counters_.disk_corrupt += answer.corrupt_entries;
  if (!match.snapshot) {
    ++counters_.misses;
    return match;
  }
  ++counters_.hits;
  if (match.is_from_disk) ++counters_.disk_hits;
  if (length == static_cast<int>(prompt.size())) ++counters_.exact_hits;
  counters_.reused_tokens += length;
  return match;
}

std::shared_ptr<const Snapshot> PrefixCache::peek(std::span<const TokenId> prompt, bool needs_history) const {
  if (!is_enabled()) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::optional<std::size_t> best = find_longest(prompt, needs_history, candidates(prompt));
  return best ? entries_[*best].snapshot : nullptr;
}

bool PrefixCache::touch(std::span<const TokenId> ids, SnapshotClass kind, bool has_logits, bool has_history) {
  const std::lock_guard lock(mutex_);
  const std::optional<std::size_t> found = find(ids, hash_tokens(ids));
  if (!found) return false;
  Entry& entry = entries_[*found];
  if (rank_of(*entry.snapshot) < rank_of(has_history, has_logits)) return false;
  mark_used(entry, kind);
  return true;
}

void PrefixCache::mark_used(Entry& entry, SnapshotClass kind) {
  entry.last_use = ++clock_;
  if (kind == SnapshotClass::kSystem && entry.kind != kind) system_bytes_ += whole_bytes(*entry.snapshot);
  entry.kind = std::min(entry.kind, kind);
}

/// Bytes that storing the snapshot would add, or dropping it would free once its pages are uncounted.
std::size_t PrefixCache::added_bytes(const Snapshot& snapshot) const {
  std::size_t bytes = snapshot.exclusive_bytes();
  for (const KvPageRef& page : snapshot.pages())
    if (!page_uses_.contains(page.get())) bytes += page->bytes.size_bytes();
  return bytes;
}

void PrefixCache::insert(std::shared_ptr<const Snapshot> snapshot, SnapshotClass kind, std::uint64_t hash,
                         int messages_end) {
  bytes_ += added_bytes(*snapshot);
  if (kind == SnapshotClass::kSystem) system_bytes_ += whole_bytes(*snapshot);
  for (const KvPageRef& page : snapshot->pages()) ++page_uses_[page.get()];
  ++lengths_[snapshot->length()];
  by_ids_.insert(snapshot.get());
  by_hash_.emplace(hash, entries_.size());
  const std::uint64_t messages_hash =
      hash_tokens(snapshot->ids().first(static_cast<std::size_t>(messages_end)));
  entries_.push_back({std::move(snapshot), kind, hash, ++clock_, messages_end, messages_hash, false});
}

void PrefixCache::erase(std::size_t index) {
  const auto forget = [this](std::uint64_t hash, std::size_t place) {
    const auto [begin, end] = by_hash_.equal_range(hash);
    by_hash_.erase(std::find_if(begin, end, [&](const auto& item) { return item.second == place; }));
  };
  const Entry entry = std::move(entries_[index]);
  forget(entry.hash, index);
  by_ids_.erase(entry.snapshot.get());
  const auto length = lengths_.find(entry.snapshot->length());
  if (--length->second == 0) lengths_.erase(length);
  for (const KvPageRef& page : entry.snapshot->pages()) {
    const auto use = page_uses_.find(page.get());
    if (--use->second == 0) page_uses_.erase(use);
  }
  bytes_ -= added_bytes(*entry.snapshot);
  if (entry.kind == SnapshotClass::kSystem) system_bytes_ -= whole_bytes(*entry.snapshot);
  const std::size_t last = entries_.size() - 1;
  if (index != last) {  // the last entry moves into the gap
    forget(entries_[last].hash, last);
    by_hash_.emplace(entries_[last].hash, index);
    entries_[index] = std::move(entries_[last]);
  }
  entries_.pop_back();
}

void PrefixCache::remember_evicted(std::uint64_t hash) {
  evicted_order_.push_back(hash);
  evicted_.insert(hash);
  if (evicted_order_.size() <= kRememberedEvictions) return;
  evicted_.erase(evicted_.find(evicted_order_.front()));
  evicted_order_.pop_front();
}

bool PrefixCache::may_evict(const Entry& entry, SnapshotClass for_kind) const {
  if (entry.snapshot.use_count() > 1) return false;  // pinned
  return for_kind != SnapshotClass::kInterval || entry.kind == SnapshotClass::kInterval;
}

/// True if the snapshot fits beside everything that may not be evicted for it.
bool PrefixCache::can_fit(const Snapshot& snapshot, SnapshotClass kind,
                          std::optional<std::size_t> twin) const {
  std::unordered_set<const KvPage*> pages;
  std::size_t bytes = 0;
  const auto add = [&](const Snapshot& s) {
    bytes += s.exclusive_bytes();
    for (const KvPageRef& page : s.pages())
      if (pages.insert(page.get()).second) bytes += page->bytes.size_bytes();
  };
  add(snapshot);
  for (std::size_t i = 0; i < entries_.size() && bytes <= budget_bytes_; ++i)
    if (i != twin && !may_evict(entries_[i], kind)) add(*entries_[i].snapshot);
  return bytes <= budget_bytes_;
}

/// Many different system parts (one with the date in it, say) must not take the place of conversations.
bool PrefixCache::goes_before(const Entry& a, const Entry& b) const {
  const auto class_of = [this](const Entry& e) {
    const bool is_pinned = system_bytes_ <= budget_bytes_ / 2;
    return e.kind == SnapshotClass::kSystem && !is_pinned ? SnapshotClass::kSemantic : e.kind;
  };
  if (class_of(a) != class_of(b)) return class_of(a) > class_of(b);
  if (a.kind == SnapshotClass::kInterval) {
    const int x = std::countr_zero(static_cast<unsigned>(a.snapshot->length()));
    const int y = std::countr_zero(static_cast<unsigned>(b.snapshot->length()));
    if (x != y) return x < y;
  }
  return a.last_use < b.last_use;
}

void PrefixCache::make_room(const Snapshot& snapshot, SnapshotClass kind) {
  while (bytes_ + added_bytes(snapshot) > budget_bytes_) {
    std::optional<std::size_t> victim;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (may_evict(entries_[i], kind) && (!victim || goes_before(entries_[i], entries_[*victim])))
        victim = i;
    MERERUN_CHECK(victim.has_value(), "what fits beside the pinned entries finds room");
    drop(*victim);
    ++counters_.evictions;
  }
}

void PrefixCache::drop(std::size_t index) {
  remember_evicted(entries_[index].hash);
  erase(index);
}

/// Those on the way to `border` whose neighbours are close enough without them.
void PrefixCache::add_between(const std::vector<std::size_t>& path, int border,
                              std::vector<const Snapshot*>& dropped) const {
  int before = 0;
  for (std::size_t k = 0; k + 1 < path.size(); ++k) {
    const Entry& entry = entries_[path[k]];
    if (entry.snapshot->length() >= border) return;
    const int gap = entries_[path[k + 1]].snapshot->length() - before;
    const bool stays = entry.kind == SnapshotClass::kSystem || entry.snapshot.use_count() > 1 ||
                       gap > std::min(before / 2, kSnapshotGapTokens);
    if (stays) {
      before = entry.snapshot->length();
    } else {
      dropped.push_back(entry.snapshot.get());
    }
  }
}

/// Those that answer messages before `border` and that the conversation went past in other words.
void PrefixCache::add_beside(std::span<const TokenId> prompt, int border,
                             std::vector<const Snapshot*>& dropped) const {
  const std::vector<std::uint64_t> hashes = prefix_hashes(prompt);
  for (const Entry& entry : entries_) {
    const auto length = static_cast<std::size_t>(entry.snapshot->length());
    const auto answered = static_cast<std::size_t>(entry.messages_end);
    const bool is_earlier =
        entry.messages_end > 0 && entry.messages_end < border && entry.messages_hash == hashes[answered];
    const bool is_on_the_way = length < hashes.size() && entry.hash == hashes[length];
    if (is_earlier && !is_on_the_way && entry.snapshot.use_count() == 1 &&
        common_prefix(prompt, entry.snapshot->ids()) >= entry.messages_end)
      dropped.push_back(entry.snapshot.get());
  }
}

void PrefixCache::thin(const Snapshot& newest) {
  std::vector<std::size_t> path = candidates(newest.ids());
  std::erase_if(path, [&](std::size_t i) { return entries_[i].snapshot->length() == newest.length(); });
  int ends = 0;
  const auto border = std::find_if(path.rbegin(), path.rend(), [&](std::size_t i) {
    return entries_[i].kind != SnapshotClass::kInterval && ++ends == kRecentEnds;
  });
  if (border == path.rend()) return;
  const int length = entries_[*border].snapshot->length();
  std::vector<const Snapshot*> dropped;
  add_between(path, length, dropped);
  add_beside(newest.ids(), length, dropped);
  for (const Snapshot* snapshot : dropped) drop(*find(snapshot->ids(), hash_tokens(snapshot->ids())));
  counters_.thinned += static_cast<std::int64_t>(dropped.size());
}

bool PrefixCache::store_in_memory(const std::shared_ptr<const Snapshot>& snapshot, int messages_end) {
  const std::lock_guard lock(mutex_);
  if (!is_enabled()) {
    count_skipped_locked("disabled");
    return false;
  }
  const std::uint64_t hash = hash_tokens(snapshot->ids());
  SnapshotClass kind = snapshot->kind();
  const std::optional<std::size_t> twin = find(snapshot->ids(), hash);
  if (twin) {
    Entry& entry = entries_[*twin];
    mark_used(entry, kind);
    kind = entry.kind;
    if (rank_of(*snapshot) <= rank_of(*entry.snapshot)) return true;
  }
  if (bytes_ + added_bytes(*snapshot) > budget_bytes_ && !can_fit(*snapshot, kind, twin)) {
    count_skipped_locked(whole_bytes(*snapshot) > budget_bytes_ ? "too-large" : "budget");
    return false;
  }
  if (twin) erase(*twin);
  make_room(*snapshot, kind);
  insert(snapshot, kind, hash, messages_end);
  if (snapshot->kind() == SnapshotClass::kPrompt) thin(*snapshot);
  ++counters_.stored_prefixes;
  counters_.stored_tokens += snapshot->length();
  return true;
}

bool PrefixCache::store(std::shared_ptr<const Snapshot> snapshot, int messages_end) {
  MERERUN_CHECK(messages_end >= 0 && messages_end <= snapshot->length(), "the messages are among the tokens");
  const bool stored = store_in_memory(snapshot, messages_end);
  if (stored) {
    offer(snapshot);
  } else if (tier_ && is_enabled()) {
    tier_->offer(snapshot);  // the disk may have room where memory has none
  }
  return stored;
}

/// Offers what the tier has not taken yet: one that was busy is asked again when the snapshot is used.
void PrefixCache::offer(const std::shared_ptr<const Snapshot>& snapshot) {
  if (!tier_ || !snapshot) return;
  const auto entry = [&, hash = hash_tokens(snapshot->ids())]() -> Entry* {
    const std::optional<std::size_t> at = find(snapshot->ids(), hash);
    return at ? &entries_[*at] : nullptr;
  };
  {
    const std::lock_guard lock(mutex_);
    const Entry* known = entry();
    if (known != nullptr && (known->is_offered || known->snapshot != snapshot)) return;
  }
  const bool taken = tier_->offer(snapshot);
  const std::lock_guard lock(mutex_);
  if (Entry* known = entry()) known->is_offered |= taken && known->snapshot == snapshot;
}

void PrefixCache::count_skipped(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  count_skipped_locked(reason);
}

void PrefixCache::count_skipped_locked(std::string_view reason) {
  const auto it = counters_.skipped_stores.find(reason);
  if (it != counters_.skipped_stores.end()) {
    ++it->second;
  } else {
    counters_.skipped_stores.emplace(reason, 1);
  }
}

void PrefixCache::clear() {
  const std::lock_guard lock(mutex_);
  by_ids_.clear();  // refers to the entries
  entries_.clear();
  by_hash_.clear();
  lengths_.clear();
  page_uses_.clear();
  evicted_.clear();
  evicted_order_.clear();
  bytes_ = system_bytes_ = 0;
}

std::size_t PrefixCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::size_t PrefixCache::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

PrefixCacheCounters PrefixCache::counters() const {
  const std::lock_guard lock(mutex_);
  PrefixCacheCounters counters = counters_;
  counters.compared_ids = compared_ids_;
  return counters;
}

}  // namespace mererun
