#include "cache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {

/// Order-dependent hash of a token sequence, extended one id at a time.
std::uint64_t extend_hash(std::uint64_t hash, TokenId id) {
  hash ^= static_cast<std::uint32_t>(id) + 0x9E3779B97F4A7C15ull;
  hash *= 0xBF58476D1CE4E5B9ull;
  return hash ^ (hash >> 31);
}

std::uint64_t hash_of(std::span<const TokenId> ids) {
  std::uint64_t hash = 0;
  for (const TokenId id : ids) hash = extend_hash(hash, id);
  return hash;
}

int common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<int>(x - a.begin());
}

}  // namespace

std::size_t PrefixCache::find(std::span<const TokenId> ids, std::uint64_t hash) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const auto stored = entries_[it->second].snapshot->ids();
    if (std::equal(stored.begin(), stored.end(), ids.begin(), ids.end())) return it->second;
  }
  return kNone;
}

PrefixMatch PrefixCache::lookup(std::span<const TokenId> prompt) {
  PrefixMatch match;
  if (!is_enabled()) return match;
  std::size_t best = kNone;
  std::uint64_t hash = 0;
  auto next_length = lengths_.begin();
  for (std::size_t i = 0; i < prompt.size() && next_length != lengths_.end(); ++i) {
    hash = extend_hash(hash, prompt[i]);
    if (next_length->first != static_cast<int>(i) + 1) continue;
    const std::size_t found = find(prompt.first(i + 1), hash);
    if (found != kNone) best = found;
    ++next_length;
  }
  if (best == kNone) {
    ++counters_.misses;
    for (const Entry& entry : entries_)
      match.common_tokens = std::max(match.common_tokens, common_prefix(prompt, entry.snapshot->ids()));
    return match;
  }
  Entry& entry = entries_[best];
  entry.last_use = ++clock_;
  match.snapshot = entry.snapshot;
  match.common_tokens = entry.snapshot->length();
  ++counters_.hits;
  if (entry.snapshot->length() == static_cast<int>(prompt.size())) ++counters_.exact_hits;
  counters_.reused_tokens += entry.snapshot->length();
  return match;
}

bool PrefixCache::contains(std::span<const TokenId> ids) {
  const std::size_t found = find(ids, hash_of(ids));
  if (found == kNone) return false;
  entries_[found].last_use = ++clock_;
  return true;
}

std::size_t PrefixCache::added_bytes(const Snapshot& snapshot) const {
  const auto& state = snapshot.state();
  const std::size_t trunk_page = state.kv().geometry().page_bytes();
  const std::size_t head_page = state.history() ? state.history()->cache().geometry().page_bytes() : 0;
  const std::size_t trunk_pages = state.kv().share_pages().size();
  const std::vector<const KvPage*> pages = snapshot.pages();
  std::size_t bytes = snapshot.exclusive_bytes();
  for (std::size_t i = 0; i < pages.size(); ++i)
    if (!page_uses_.contains(pages[i])) bytes += i < trunk_pages ? trunk_page : head_page;
  return bytes;
}

void PrefixCache::erase(std::size_t index) {
  const Entry entry = std::move(entries_[index]);
  const auto [begin, end] = by_hash_.equal_range(entry.hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second == index) {
      by_hash_.erase(it);
      break;
    }
  }
  const auto length = lengths_.find(entry.snapshot->length());
  if (--length->second == 0) lengths_.erase(length);
  for (const KvPage* page : entry.snapshot->pages()) {
    const auto use = page_uses_.find(page);
    if (--use->second == 0) page_uses_.erase(use);
  }
  bytes_ -= added_bytes(*entry.snapshot);  // what it alone kept alive, now that its pages are uncounted
  if (index + 1 != entries_.size()) {
    entries_[index] = std::move(entries_.back());
    reindex(index);
  }
  entries_.pop_back();
}

/// The entry now at `index` was the last one.
void PrefixCache::reindex(std::size_t index) {
  const auto [begin, end] = by_hash_.equal_range(entries_[index].hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second == entries_.size() - 1) {
      it->second = index;
      return;
    }
  }
}

bool PrefixCache::make_room(const Snapshot& snapshot) {
  while (bytes_ + added_bytes(snapshot) > budget_bytes_) {
    std::size_t victim = kNone;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].snapshot.use_count() > 1) continue;  // pinned
      if (victim == kNone) {
        victim = i;
        continue;
      }
      const Entry& a = entries_[i];
      const Entry& b = entries_[victim];
      if (a.snapshot->kind() != b.snapshot->kind() ? a.snapshot->kind() > b.snapshot->kind()
                                                   : a.last_use < b.last_use)
        victim = i;
    }
    if (victim == kNone) return false;
    erase(victim);
    ++counters_.evictions;
  }
  return true;
}

bool PrefixCache::store(std::shared_ptr<const Snapshot> snapshot) {
  if (!is_enabled()) {
    count_skipped("disabled");
    return false;
  }
  const std::uint64_t hash = hash_of(snapshot->ids());
  if (const std::size_t twin = find(snapshot->ids(), hash); twin != kNone) {
    entries_[twin].last_use = ++clock_;
    const Snapshot& stored = *entries_[twin].snapshot;
    const bool adds_logits = stored.logits().empty() && !snapshot->logits().empty();
    if (!adds_logits && stored.kind() <= snapshot->kind()) return true;
    erase(twin);
  }
  if (snapshot->exclusive_bytes() > budget_bytes_) {
    count_skipped("too-large");
    return false;
  }
  if (!make_room(*snapshot)) {
    count_skipped("budget");
    return false;
  }
  bytes_ += added_bytes(*snapshot);
  for (const KvPage* page : snapshot->pages()) ++page_uses_[page];
  ++lengths_[snapshot->length()];
  by_hash_.emplace(hash, entries_.size());
  ++counters_.stored_prefixes;
  counters_.stored_tokens += snapshot->length();
  entries_.push_back({std::move(snapshot), hash, ++clock_});
  return true;
}

void PrefixCache::count_skipped(std::string_view reason) {
  const auto it = counters_.skipped_stores.find(reason);
  if (it != counters_.skipped_stores.end()) {
    ++it->second;
  } else {
    counters_.skipped_stores.emplace(reason, 1);
  }
}

void PrefixCache::clear() {
  entries_.clear();
  by_hash_.clear();
  lengths_.clear();
  page_uses_.clear();
  bytes_ = 0;
}

}  // namespace mererun
