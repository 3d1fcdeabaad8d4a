// Lookup, replacement, eviction, pins and accounting, on snapshots of a few kilobytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unordered_map>

#include "cache/prefix_cache.h"
#include "cache/token_hash.h"
#include "tests/cache/small_states.h"

namespace mererun {
namespace {

using testing::count_up;
using ::testing::ElementsAre;
using testing::joined;
using ::testing::Pair;
using testing::SmallStates;

constexpr std::size_t kPlenty = std::size_t{1} << 30;

class PrefixCacheTest : public ::testing::Test {
 protected:
  std::size_t whole_bytes(const Snapshot& s) const {
    std::size_t bytes = s.exclusive_bytes();
    for (const KvPageRef& page : s.pages()) bytes += page->bytes.size_bytes();
    return bytes;
  }
  int matched(PrefixCache& cache, const std::vector<TokenId>& prompt) {
    const PrefixMatch match = cache.lookup(prompt);
    return match.snapshot ? match.snapshot->length() : 0;
  }
  SmallStates states_;
};

TEST_F(PrefixCacheTest, TheLongestStoredPrefixWins) {
  PrefixCache cache(kPlenty);
  for (const int length : {3, 10, 11, 300, 40}) cache.store(states_.snapshot(count_up(1, length)));
  cache.store(states_.snapshot(joined(count_up(1, 20), {99})));
  EXPECT_EQ(matched(cache, count_up(1, 2)), 0);
  EXPECT_EQ(matched(cache, count_up(1, 3)), 3);
  EXPECT_EQ(matched(cache, count_up(1, 9)), 3);
  EXPECT_EQ(matched(cache, count_up(1, 10)), 10);
  EXPECT_EQ(matched(cache, count_up(1, 39)), 11);
  EXPECT_EQ(matched(cache, joined(count_up(1, 20), {99, 5})), 21);
  EXPECT_EQ(matched(cache, joined(count_up(1, 50), {5})), 40);
  EXPECT_EQ(matched(cache, count_up(1, 299)), 40) << "a longer snapshot is no match";
  EXPECT_EQ(matched(cache, count_up(1, 5000)), 300);
  EXPECT_EQ(matched(cache, count_up(2, 5000)), 0);
}

TEST_F(PrefixCacheTest, AMissSaysWhy) {
  PrefixCache cache(kPlenty);
  EXPECT_EQ(cache.lookup(count_up(1, 5)).limit, PrefixLimit::kEmpty);
  cache.store(states_.snapshot(count_up(1, 30)));
  cache.store(states_.snapshot(joined(count_up(1, 12), {7, 7, 7})));
  cache.store(states_.snapshot(count_up(500, 4)));
  EXPECT_EQ(cache.lookup(count_up(3, 5)).limit, PrefixLimit::kNoCommonPrefix);
  PrefixMatch match = cache.lookup(joined(count_up(1, 29), {7}));
  EXPECT_EQ(match.limit, PrefixLimit::kDiverged);
  EXPECT_EQ(match.common_tokens, 29);
  match = cache.lookup(joined(count_up(1, 12), {7, 7, 8}));
  EXPECT_EQ(match.common_tokens, 14);
  match = cache.lookup(count_up(1, 17));
  EXPECT_EQ(match.common_tokens, 17) << "a prompt that is a prefix of what is stored";
  cache.store(states_.snapshot(count_up(1, 5)));
  match = cache.lookup(count_up(1, 17));
  EXPECT_EQ(match.snapshot->length(), 5);
  EXPECT_EQ(match.limit, PrefixLimit::kDiverged) << "a hit says where more would have been";
  EXPECT_EQ(cache.lookup(count_up(1, 30)).limit, PrefixLimit::kNone);
}

/// Two different sequences with one hash: 32 chosen bits of the last id undo the difference of two states
/// whose upper halves agree.
std::pair<std::vector<TokenId>, std::vector<TokenId>> make_collision() {
  std::unordered_map<std::uint32_t, std::vector<TokenId>> seen;
  std::uint64_t x = 1;
  for (;;) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    std::vector<TokenId> ids{static_cast<TokenId>(x >> 44), static_cast<TokenId>((x >> 24) & 0xfffff)};
    const std::uint64_t hash = hash_tokens(ids);
    const auto [it, fresh] = seen.emplace(static_cast<std::uint32_t>(hash >> 32), ids);
    if (fresh || it->second == ids) continue;
    const std::uint64_t golden = 0x9E3779B97F4A7C15ull;
    const std::uint64_t wanted = (hash ^ hash_tokens(it->second) ^ (5 + golden)) - golden;
    if (wanted > 0xffffffffull) continue;
    std::vector<TokenId> other = it->second;
    ids.push_back(5);
    other.push_back(static_cast<TokenId>(static_cast<std::uint32_t>(wanted)));
    return {ids, other};
  }
}

TEST_F(PrefixCacheTest, EqualHashesAreConfirmedIdById) {
  const auto [a, b] = make_collision();
  ASSERT_NE(a, b);
  ASSERT_EQ(hash_tokens(a), hash_tokens(b));
  PrefixCache cache(kPlenty);
  cache.store(states_.snapshot(a));
  EXPECT_EQ(matched(cache, joined(b, {4})), 0);
  EXPECT_FALSE(cache.touch(b, SnapshotClass::kPrompt, false, true));
  cache.store(states_.snapshot(b));
  EXPECT_EQ(cache.entries(), 2u);
  for (const auto& ids : {a, b}) {
    const PrefixMatch match = cache.lookup(joined(ids, {4}));
    ASSERT_TRUE(match.snapshot);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), match.snapshot->ids().begin()));
  }
  cache.clear();
  EXPECT_EQ(matched(cache, a), 0);
}

TEST_F(PrefixCacheTest, SharedPagesCountOnce) {
  PrefixCache cache(kPlenty);
  const auto base = states_.snapshot(count_up(1, 512));
  cache.store(base);
  EXPECT_EQ(cache.bytes(), whole_bytes(*base));
  const auto more = states_.extended(*base, count_up(5000, 10));
  cache.store(more);
  const std::size_t page = states_.pools.trunk->geometry().page_bytes();
  EXPECT_EQ(cache.bytes(),
            whole_bytes(*base) + more->exclusive_bytes() + page + states_.pools.head->geometry().page_bytes())
      << "one page of new positions, and the head's second group";
  const auto sibling = states_.extended(*base, count_up(9000, 10));
  cache.store(sibling);
  // What the rest costs does not depend on the order in which the entries go.
  cache.clear();
  EXPECT_EQ(cache.bytes(), 0u);
  cache.store(more);
  cache.store(sibling);
  cache.store(base);
  EXPECT_EQ(cache.bytes(), whole_bytes(*more) + sibling->exclusive_bytes() + page +
                               states_.pools.head->geometry().page_bytes() + base->exclusive_bytes());
}

TEST_F(PrefixCacheTest, BytesAreWhatTheEntriesHoldWhateverGoes) {
  std::uint64_t x = 17;
  const auto random = [&](int n) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int>((x >> 33) % static_cast<std::uint64_t>(n));
  };
  const std::size_t one = whole_bytes(*states_.snapshot(count_up(1, 300)));
  PrefixCache cache(one * 6);
  std::vector<std::vector<TokenId>> known;
  for (int step = 0; step < 400; ++step) {
    std::shared_ptr<const Snapshot> snapshot;
    const PrefixMatch match =
        known.empty() ? PrefixMatch{}
                      : cache.lookup(known[static_cast<std::size_t>(random(static_cast<int>(known.size())))]);
    const auto kind = static_cast<SnapshotClass>(random(4));
    if (match.snapshot && random(3) != 0) {
      snapshot = states_.extended(*match.snapshot, count_up(random(5) * 100, 1 + random(300)), kind);
    } else {
      snapshot = states_.snapshot(count_up(random(4), 1 + random(600)), kind);
    }
    known.emplace_back(snapshot->ids().begin(), snapshot->ids().end());
    cache.store(snapshot);
    ASSERT_LE(cache.bytes(), cache.budget_bytes());
  }
  EXPECT_GT(cache.counters().evictions, 50);
  EXPECT_GT(cache.entries(), 2u);
  cache.clear();
  states_.pools.trunk->trim();
  states_.pools.head->trim();
  EXPECT_EQ(states_.ops.live_bytes, 0u) << "nothing outlives its entries";
}

TEST_F(PrefixCacheTest, EvictionGoesByClassThenByUse) {
  const auto snapshot = [&](int first, SnapshotClass kind) {
    return states_.snapshot(count_up(first, 20), kind);
  };
  const std::size_t one = whole_bytes(*snapshot(1, SnapshotClass::kPrompt));
  PrefixCache cache(one * 5);
  cache.store(snapshot(1, SnapshotClass::kSemantic));
  cache.store(snapshot(2, SnapshotClass::kPrompt));
  cache.store(snapshot(3, SnapshotClass::kPrompt));
  cache.store(snapshot(4, SnapshotClass::kReply));
  cache.store(snapshot(5, SnapshotClass::kInterval));
  EXPECT_EQ(cache.entries(), 5u);
  EXPECT_EQ(matched(cache, count_up(2, 20)), 20);  // 2 is used after 3
  const auto gone = [&](int first) { return !cache.peek(count_up(first, 20)); };
  int next = 100;
  std::vector<int> order;
  for (int round = 0; round < 5; ++round) {
    cache.store(snapshot(next++, SnapshotClass::kSemantic));
    for (const int first : {1, 2, 3, 4, 5})
      if (gone(first) && std::find(order.begin(), order.end(), first) == order.end()) order.push_back(first);
  }
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1));
  EXPECT_EQ(cache.counters().evictions, 5);
  EXPECT_EQ(cache.lookup(count_up(4, 20)).limit, PrefixLimit::kEvicted);
}

TEST_F(PrefixCacheTest, TheLast4096EvictionsAreRemembered) {
  PrefixCache cache(whole_bytes(*states_.snapshot(count_up(1, 20))));  // room for one
  for (int i = 0; i <= 4096; ++i) cache.store(states_.snapshot(count_up(1000 + i, 20)));
  EXPECT_EQ(cache.lookup(count_up(1000, 20)).limit, PrefixLimit::kEvicted);
  cache.store(states_.snapshot(count_up(9000, 20)));
  EXPECT_NE(cache.lookup(count_up(1000, 20)).limit, PrefixLimit::kEvicted) << "4096 others went since";
}

TEST_F(PrefixCacheTest, SystemPartsArePinned) {
  const auto snapshot = [&](int first, SnapshotClass kind) {
    return states_.snapshot(count_up(first, 20), kind);
  };
  const std::size_t one = whole_bytes(*snapshot(1, SnapshotClass::kPrompt));
  const auto has = [](PrefixCache& cache, int first) { return cache.peek(count_up(first, 20)) != nullptr; };
  PrefixCache cache(one * 4);
  cache.store(snapshot(1, SnapshotClass::kPrompt));
  cache.store(snapshot(1, SnapshotClass::kSystem));  // found to be one: the better class stays
  cache.store(snapshot(2, SnapshotClass::kSystem));
  for (int first = 10; first < 40; ++first) {
    ASSERT_TRUE(cache.store(snapshot(first, SnapshotClass::kSemantic)));
    ASSERT_TRUE(has(cache, 1) && has(cache, 2)) << "half of the budget is theirs, whatever comes and goes";
  }
  // More of them than that are as good as any message's end: the least recently used goes.
  cache.store(snapshot(3, SnapshotClass::kSystem));
  EXPECT_TRUE(has(cache, 1) && has(cache, 2) && has(cache, 3));
  ASSERT_TRUE(cache.lookup(count_up(1, 20)).snapshot);
  for (int first = 50; first < 53; ++first) cache.store(snapshot(first, SnapshotClass::kSemantic));
  EXPECT_TRUE(has(cache, 1) && has(cache, 3));
  EXPECT_FALSE(has(cache, 2));
  EXPECT_EQ(cache.lookup(count_up(1, 20)).kind, SnapshotClass::kSystem);
  EXPECT_EQ(name_of(SnapshotClass::kSystem), "semantic");
  // A snapshot that needs the whole budget has it.
  PrefixCache small(whole_bytes(*states_.snapshot(count_up(9, 600))));
  small.store(snapshot(1, SnapshotClass::kSystem));
  EXPECT_TRUE(small.store(states_.snapshot(count_up(9, 600))));
  EXPECT_EQ(small.entries(), 1u);
}

/// Takes what it is offered from the second time on.
class BusyTier final : public SnapshotTier {
 public:
  Answer find(const Query&) override { return {}; }
  bool offer(const std::shared_ptr<const Snapshot>& snapshot) override {
    ++offers[snapshot->length()];
    return offers[snapshot->length()] > 1;
  }
  std::map<int, int> offers;
};

TEST_F(PrefixCacheTest, WhatTheTierWasTooBusyForIsOfferedAgainWhenItIsUsed) {
  PrefixCache cache(kPlenty);
  auto owned = std::make_unique<BusyTier>();
  BusyTier& tier = *owned;
  cache.attach(std::move(owned));
  cache.store(states_.snapshot(count_up(1, 20)));
  cache.store(states_.snapshot(count_up(1, 30)));
  EXPECT_THAT(tier.offers, ElementsAre(Pair(20, 1), Pair(30, 1)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(matched(cache, count_up(1, 29)), 20);
  EXPECT_THAT(tier.offers, ElementsAre(Pair(20, 2), Pair(30, 1)));
}

/// Stores the aligned positions below `length` and returns the state behind `length` tokens.
std::shared_ptr<const Snapshot> store_prompt(PrefixCache& cache, SmallStates& states, int length) {
  std::shared_ptr<const Snapshot> last;
  const auto go_to = [&](int at, SnapshotClass kind) {
    const int from = last ? last->length() : 0;
    last = last ? states.extended(*last, count_up(from, at - from), kind)
                : states.snapshot(count_up(0, at), kind);
    cache.store(last);
  };
  go_to(100, SnapshotClass::kSystem);
  for (int at = 128; at < length; at += std::min(at, kSnapshotGapTokens)) go_to(at, SnapshotClass::kInterval);
  go_to(length, SnapshotClass::kPrompt);
  return last;
}

TEST_F(PrefixCacheTest, TwentyTurnsCostLittleMoreThanOne) {
  constexpr int kLong = 30000;
  PrefixCache cache(kPlenty);
  auto last = store_prompt(cache, states_, kLong);
  const std::size_t one = cache.bytes();
  const std::size_t entries = cache.entries();
  std::vector<int> ends;
  for (int turn = 0; turn < 20; ++turn) {
    for (const auto& [tokens, kind] :
         {std::pair(16, SnapshotClass::kReply), std::pair(40, SnapshotClass::kPrompt)}) {
      ends.push_back(last->length());
      last = states_.extended(*last, count_up(last->length(), tokens), kind);
      cache.store(last);
    }
  }
  // What four ends and the newest hold each, and the pages of the new positions.
  const std::size_t page =
      states_.pools.trunk->geometry().page_bytes() + states_.pools.head->geometry().page_bytes();
  EXPECT_EQ(cache.entries(), entries + 4);
  EXPECT_LE(cache.bytes(), one + 4 * (last->exclusive_bytes() + page) + 5 * page);
  EXPECT_LE(cache.bytes() * 4, one * 5);
  EXPECT_EQ(cache.counters().thinned, 36);
  EXPECT_EQ(cache.counters().evictions, 0);
  // The last two turns are there to the token, and wherever a prompt leaves, the bound holds.
  for (std::size_t i = ends.size() - 4; i < ends.size(); ++i)
    EXPECT_EQ(matched(cache, joined(count_up(0, ends[i]), {-1})), ends[i]);
  for (int at = 128; at < last->length(); at += 97) {
    const int reused = matched(cache, joined(count_up(0, at), {-1}));
    EXPECT_GE(2 * reused, at) << at;
    EXPECT_LT(at - reused, kSnapshotGapTokens) << at;
  }
  EXPECT_EQ(matched(cache, joined(count_up(0, 110), {-1})), 100) << "the system part is pinned";
}

TEST_F(PrefixCacheTest, ThinningKeepsWhatIsHeldAndWhatIsFarFromOthers) {
  PrefixCache cache(kPlenty);
  auto last = store_prompt(cache, states_, 300);
  const auto held = cache.peek(count_up(0, 300));
  last.reset();
  last = held;
  std::vector<int> lengths{300};
  for (int turn = 0; turn < 12; ++turn) {  // 400 tokens a turn
    last = states_.extended(*last, count_up(last->length(), 400));
    lengths.push_back(last->length());
    cache.store(last);
  }
  EXPECT_EQ(matched(cache, joined(count_up(0, 300), {-1})), 300);
  int before = 300;
  for (const int length : lengths) {
    if (matched(cache, joined(count_up(0, length), {-1})) != length) continue;
    EXPECT_LE(length - before, std::max(400, before / 2)) << length;
    before = length;
  }
  EXPECT_EQ(before, 5100);
  EXPECT_LT(cache.entries(), lengths.size() + 3) << "with the three that the prompt left";
}

TEST_F(PrefixCacheTest, WhatEarlierTurnsLeftBesideTheConversationIsThinnedToo) {
  PrefixCache cache(kPlenty);
  std::vector<std::vector<TokenId>> answered;
  std::shared_ptr<const Snapshot> messages = states_.snapshot(count_up(0, 300), SnapshotClass::kSystem);
  cache.store(messages);
  for (int turn = 0; turn < 10; ++turn) {
    // The question; the prompt ends in a generation prompt, and the template rewrites the reply to it.
    messages = states_.extended(*messages, count_up(1000 * turn, 20), SnapshotClass::kSemantic);
    cache.store(messages);
    const auto prompt = states_.extended(*messages, {-5, -6}, SnapshotClass::kPrompt);
    cache.store(prompt, messages->length());
    cache.store(states_.extended(*prompt, {-7, 8, 9}, SnapshotClass::kReply), messages->length());
    answered.emplace_back(prompt->ids().begin(), prompt->ids().end());
    // Another conversation that says something else at the same place.
    const auto other = states_.extended(*messages, {-8, turn}, SnapshotClass::kPrompt);
    if (turn < 2) cache.store(states_.extended(*other, {-5, -6}), other->length());
    messages = states_.extended(*messages, count_up(1000 * turn + 500, 10), SnapshotClass::kSemantic);
    cache.store(messages);
  }
  for (std::size_t turn = 0; turn < 10; ++turn) {
    const auto& prompt = answered[turn];
    EXPECT_EQ(matched(cache, prompt) == static_cast<int>(prompt.size()), turn >= 8) << turn;
  }
  std::vector<TokenId> question(answered[1].begin(), answered[1].end() - 2);
  EXPECT_EQ(matched(cache, joined(question, {-8, 1, -5, -6})), static_cast<int>(question.size()) + 4);
  EXPECT_LE(cache.entries(), 13u);
}

TEST_F(PrefixCacheTest, IntervalsAreThinnedAndDisplaceNothingElse) {
  const auto interval = [&](int length) {
    return states_.snapshot(count_up(1, length), SnapshotClass::kInterval);
  };
  std::size_t four = 0;
  for (const int length : {1024, 2048, 3072, 4096}) four += whole_bytes(*interval(length));
  PrefixCache cache(four);
  for (const int length : {1024, 2048, 3072, 4096}) ASSERT_TRUE(cache.store(interval(length)));
  ASSERT_TRUE(cache.store(states_.snapshot(count_up(1, 100))));
  EXPECT_FALSE(cache.peek(count_up(1, 1024))->length() == 1024) << "the least round position goes first";
  EXPECT_EQ(cache.peek(count_up(1, 3072))->length(), 3072);
  ASSERT_TRUE(cache.store(states_.snapshot(count_up(2, 1024))));
  EXPECT_EQ(cache.peek(count_up(1, 3072))->length(), 2048);
  EXPECT_EQ(cache.peek(count_up(1, 4096))->length(), 4096);

  PrefixCache full(whole_bytes(*states_.snapshot(count_up(1, 100))));
  ASSERT_TRUE(full.store(states_.snapshot(count_up(1, 100))));
  EXPECT_FALSE(full.store(states_.snapshot(count_up(2, 64), SnapshotClass::kInterval)));
  EXPECT_EQ(full.entries(), 1u);
  EXPECT_THAT(full.counters().skipped_stores, ElementsAre(Pair("budget", 1)));
}

TEST_F(PrefixCacheTest, WhatIsHeldIsNeverEvicted) {  // B048, B051
  const std::size_t one = whole_bytes(*states_.snapshot(count_up(1, 20)));
  PrefixCache cache(one * 2);
  cache.store(states_.snapshot(count_up(1, 20)));
  cache.store(states_.snapshot(count_up(2, 20)));
  auto first = cache.peek(count_up(1, 25));
  auto second = cache.peek(count_up(2, 25));
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(cache.store(states_.snapshot(count_up(3, 20))));
  EXPECT_THAT(cache.counters().skipped_stores, ElementsAre(Pair("budget", 1)));
  EXPECT_EQ(cache.counters().evictions, 0) << "nothing is evicted for a store that would not fit";
  first.reset();
  EXPECT_TRUE(cache.store(states_.snapshot(count_up(3, 20))));
  EXPECT_FALSE(cache.peek(count_up(1, 20)));
  EXPECT_TRUE(cache.peek(count_up(2, 20)));
}

TEST_F(PrefixCacheTest, AStoreThatFitsOnlyWithoutPinnedEntriesEvictsNothing) {
  const std::size_t one = whole_bytes(*states_.snapshot(count_up(1, 20)));
  PrefixCache cache(one * 3);
  for (const int first : {1, 2, 3}) cache.store(states_.snapshot(count_up(first, 20)));
  const auto held = cache.peek(count_up(1, 20));
  EXPECT_FALSE(cache.store(states_.snapshot(count_up(7, 600)))) << "needs all three places";
  EXPECT_EQ(cache.entries(), 3u);
}

TEST_F(PrefixCacheTest, ATinyBudgetSkipsWithAReason) {
  const auto snapshot = states_.snapshot(count_up(1, 20));
  PrefixCache cache(whole_bytes(*snapshot) - 1);
  EXPECT_FALSE(cache.store(snapshot));
  cache.count_skipped("cancelled");
  cache.count_skipped("cancelled");
  EXPECT_THAT(cache.counters().skipped_stores, ElementsAre(Pair("cancelled", 2), Pair("too-large", 1)));
  EXPECT_EQ(cache.bytes(), 0u);
  PrefixCache off(0);
  EXPECT_FALSE(off.is_enabled());
  EXPECT_FALSE(off.store(snapshot));
  EXPECT_FALSE(off.lookup(count_up(1, 20)).snapshot);
  EXPECT_THAT(off.counters().skipped_stores, ElementsAre(Pair("disabled", 1)));
}

TEST_F(PrefixCacheTest, OfTwoTwinsTheOneThatKnowsMoreStays) {
  PrefixCache cache(kPlenty);
  const auto ids = count_up(1, 20);
  cache.store(states_.snapshot(ids, SnapshotClass::kSemantic));
  EXPECT_TRUE(cache.touch(ids, SnapshotClass::kPrompt, false, true));
  EXPECT_FALSE(cache.touch(ids, SnapshotClass::kPrompt, true, true));
  cache.store(states_.snapshot(ids, SnapshotClass::kPrompt, {1, 2}));
  EXPECT_EQ(cache.entries(), 1u);
  PrefixMatch match = cache.lookup(ids);
  EXPECT_EQ(match.snapshot->logits().size(), 2u);
  EXPECT_EQ(match.kind, SnapshotClass::kSemantic) << "the better class of the two";
  cache.store(states_.snapshot(ids, SnapshotClass::kReply));
  EXPECT_EQ(cache.lookup(ids).snapshot->logits().size(), 2u) << "logits are not lost to a twin without";
  EXPECT_EQ(cache.counters().stored_prefixes, 2);
  EXPECT_EQ(cache.bytes(), whole_bytes(*cache.peek(ids)));
}

TEST_F(PrefixCacheTest, ARequestWithAHistoryTakesWholeOnesOnly) {
  PrefixCache cache(kPlenty);
  SequenceState state = states_.state();
  states_.extend(state, count_up(1, 30));
  state.history()->restart_at(29);
  cache.store(Snapshot::capture(state, count_up(1, 30), {}, SnapshotClass::kPrompt));
  PrefixMatch match = cache.lookup(count_up(1, 40), true);
  EXPECT_FALSE(match.snapshot);
  EXPECT_EQ(match.limit, PrefixLimit::kNoHistory);
  EXPECT_EQ(cache.lookup(count_up(1, 29), true).limit, PrefixLimit::kDiverged) << "no prefix of the prompt";
  cache.store(states_.snapshot(count_up(1, 10)));
  match = cache.lookup(count_up(1, 40), true);
  EXPECT_EQ(match.snapshot->length(), 10);
  EXPECT_EQ(match.limit, PrefixLimit::kNoHistory);
  EXPECT_EQ(cache.lookup(count_up(1, 10), true).limit, PrefixLimit::kNone);
  match = cache.lookup(count_up(1, 40), false);
  EXPECT_EQ(match.snapshot->length(), 30);
  EXPECT_EQ(match.limit, PrefixLimit::kNone);
  EXPECT_FALSE(cache.touch(count_up(1, 30), SnapshotClass::kPrompt, false, true));
  cache.store(states_.snapshot(count_up(1, 30)));
  EXPECT_EQ(cache.lookup(count_up(1, 40), true).snapshot->length(), 30);
}

TEST_F(PrefixCacheTest, CountersAddUp) {
  PrefixCache cache(kPlenty);
  cache.store(states_.snapshot(count_up(1, 30)));
  cache.lookup(count_up(1, 30));
  cache.lookup(count_up(1, 33));
  cache.lookup(count_up(2, 33));
  const PrefixCacheCounters c = cache.counters();
  EXPECT_EQ(c.hits, 2);
  EXPECT_EQ(c.exact_hits, 1);
  EXPECT_EQ(c.misses, 1);
  EXPECT_EQ(c.reused_tokens, 60);
  EXPECT_EQ(c.stored_prefixes, 1);
  EXPECT_EQ(c.stored_tokens, 30);
}

TEST_F(PrefixCacheTest, LookupIsLinearInThePromptHoweverMuchIsStored) {
  // 200 nested prefixes and 200 siblings that diverge late: comparing each with the prompt would read it 400
  // times.
  PrefixCache cache(kPlenty);
  auto last = states_.snapshot(count_up(1, 20000));
  cache.store(last);
  for (int i = 0; i < 200; ++i) {
    cache.store(states_.extended(*last, {50000 + i, 7}, SnapshotClass::kReply));
    last = states_.extended(*last, {i, i + 1, i + 2}, SnapshotClass::kReply);
    cache.store(last);
  }
  std::vector<TokenId> hit(last->ids().begin(), last->ids().end());
  std::vector<TokenId> miss = hit;
  miss.back() = -1;
  for (const auto& prompt : {hit, miss}) {
    const std::int64_t before = cache.counters().compared_ids;
    cache.lookup(prompt);
    // Once to confirm the match, twice for the neighbours in order; once for each level of a balanced tree of
    // 401 sequences.
    EXPECT_LE(cache.counters().compared_ids - before,
              (3 + 18) * static_cast<std::int64_t>(prompt.size() + 1));
  }
}

}  // namespace
}  // namespace mererun
