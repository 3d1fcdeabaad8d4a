// The disk store on snapshots of a few kilobytes: what comes back, what it costs, what it displaces.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/disk_index.h"
#include "cache/prefix_cache.h"
#include "cache/prefix_digest.h"
#include "cache/token_hash.h"
#include "tests/cache/disk_store_fixture.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using testing::count_up;
using testing::Ids;
using testing::joined;
using testing::SmallStates;
using testing::state_bytes;

class DiskStoreTest : public testing::DiskStoreFixture {
 protected:
  /// What a snapshot of 20 ids and its page take on disk; leaves no folder.
  std::int64_t bytes_of_one() {
    std::int64_t bytes = 0;
    {
      const auto store = open();
      store->offer(states_.snapshot(count_up(1, 20)));
      store->flush();
      bytes = store->statistics().bytes;
    }
    fs::remove_all(folder());
    return bytes;
  }
};

TEST_F(DiskStoreTest, SnapshotsComeBackAfterARestart) {
  const std::vector<int> lengths{1, 2, 255, 256, 257, 258, 512, 513, 700};
  {
    const auto store = open();
    for (const int n : lengths)
      store->offer(states_.snapshot(count_up(n, n), SnapshotClass::kReply, {1, 2, static_cast<float>(n)}));
  }
  const auto store = open();
  for (const int n : lengths) {
    const auto answer = store->find(query(joined(count_up(n, n), {3, 4})));
    ASSERT_TRUE(answer.snapshot) << n;
    EXPECT_EQ(answer.snapshot->length(), n);
    EXPECT_EQ(answer.snapshot->kind(), SnapshotClass::kReply);
    EXPECT_EQ(Ids(answer.snapshot->ids().begin(), answer.snapshot->ids().end()), count_up(n, n));
    EXPECT_EQ(answer.snapshot->logits().back(), static_cast<float>(n));
    expect_equal(*answer.snapshot);
  }
  EXPECT_EQ(found(*store, count_up(300, 254)), 0);
  for (const fs::path& file : files()) EXPECT_EQ(fs::status(file).permissions(), fs::perms(0600)) << file;
}

TEST_F(DiskStoreTest, TheLongestPrefixWinsAndIsContinued) {
  const auto store = open();
  auto last = states_.snapshot(count_up(1, 300));
  store->offer(last);
  for (int i = 0; i < 4; ++i) {
    last = states_.extended(*last, count_up(1000 * (i + 1), 130));
    store->offer(last);
  }
  store->flush();
  const Ids talk(last->ids().begin(), last->ids().end());
  EXPECT_EQ(found(*store, talk), 820);
  EXPECT_EQ(found(*store, Ids(talk.begin(), talk.begin() + 700)), 690);
  EXPECT_EQ(found(*store, Ids(talk.begin(), talk.begin() + 299)), 0);
  EXPECT_FALSE(store->find({talk, 820, true, nullptr}).snapshot) << "not longer than what is at hand";
  const auto answer = store->find(query(joined(talk, {1, 2, 3})));
  SequenceState a = answer.snapshot->restore();
  SequenceState b = last->restore();
  states_.extend(a, count_up(5, 300));
  states_.extend(b, count_up(5, 300));
  EXPECT_EQ(state_bytes(a), state_bytes(b));
}

TEST_F(DiskStoreTest, ATurnWritesOnlyWhatIsNew) {
  const auto store = open();
  auto last = states_.snapshot(count_up(1, 2048));
  store->offer(last);
  store->flush();
  const DiskStoreStatistics before = store->statistics();
  EXPECT_EQ(before.written_pages, 8 + 7);
  last = states_.extended(*last, count_up(5000, 30));
  store->offer(last);
  store->flush();
  const DiskStoreStatistics after = store->statistics();
  EXPECT_EQ(after.written_pages, before.written_pages + 1) << "the head's eighth group";
  EXPECT_LT(after.written_bytes - before.written_bytes, before.written_bytes / 3);
  // The same conversation computed anew by someone else names its pages alike.
  store->offer(states_.snapshot(joined(count_up(1, 2048), count_up(7000, 40))));
  store->flush();
  EXPECT_EQ(store->statistics().written_pages, after.written_pages + 1);
  EXPECT_EQ(found(*store, joined(count_up(1, 2048), count_up(7000, 41))), 2088);
}

TEST_F(DiskStoreTest, PagesAtHandAreNotRead) {
  const auto store = open();
  const auto base = states_.snapshot(count_up(1, 600));
  const auto more = states_.extended(*base, count_up(5000, 100));
  store->offer(more);
  store->flush();
  const Ids prompt(more->ids().begin(), more->ids().end());
  const auto answer = store->find({prompt, 600, true, base.get()});
  ASSERT_TRUE(answer.snapshot);
  EXPECT_EQ(answer.snapshot->state().kv().share_pages()[1], base->state().kv().share_pages()[1]);
  expect_equal(*answer.snapshot);
  EXPECT_EQ(state_bytes(answer.snapshot->state()), state_bytes(more->state()));
}

TEST_F(DiskStoreTest, OtherModelsAndHeadsAreMisses) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  {
    const auto other = open(1 << 30, "model-b", "head-b");
    const auto answer = other->find(query(count_up(1, 310)));
    EXPECT_FALSE(answer.snapshot);
    EXPECT_TRUE(answer.is_of_other_model);
    EXPECT_FALSE(other->find(query(count_up(2, 310))).is_of_other_model);
  }
  const auto other_head = open(1 << 30, "model-a", "head-b");
  EXPECT_FALSE(other_head->find(query(count_up(1, 310))).snapshot);
  const auto answer = other_head->find(query(count_up(1, 310), false));
  ASSERT_TRUE(answer.snapshot) << "without drafts the head does not matter";
  EXPECT_FALSE(answer.snapshot->has_whole_history());
  ASSERT_TRUE(answer.snapshot->state().history());
  EXPECT_EQ(answer.snapshot->state().history()->transitions(), 0);
  EXPECT_EQ(answer.snapshot->state().history()->base(), 299) << "the next transition is of its last row";
  EXPECT_EQ(answer.snapshot->length(), 300);
}

TEST_F(DiskStoreTest, ARestoredSnapshotCountsAllItsMemory) {
  open()->offer(states_.snapshot(count_up(1, 300)));
  SmallStates fresh;  // whose pools have no page to spare
  const auto store = open(fresh);
  const std::size_t before = fresh.ops.live_bytes;
  const auto answer = store->find(query(count_up(1, 310)));
  ASSERT_TRUE(answer.snapshot);
  const Snapshot& s = *answer.snapshot;
  std::size_t device = fresh.ops.live_bytes - before;
  for (const KvPageRef& page : s.pages()) device -= page->bytes.size_bytes();
  const std::size_t host = (s.ids().size() + s.state().history()->waiting_tokens().size()) * sizeof(TokenId);
  EXPECT_EQ(s.exclusive_bytes(), device + host);
}

TEST_F(DiskStoreTest, WhatCannotBeTakenIsSkippedAndNotOfferedAgain) {
  const auto store = open();
  const auto snapshot = states_.snapshot(count_up(1, 300));
  states_.ops.refuses_downloads = true;
  EXPECT_TRUE(store->offer(snapshot)) << "the same would fail again";
  states_.ops.refuses_downloads = false;
  store->flush();
  EXPECT_EQ(store->statistics().skipped.at("failed"), 1);
  EXPECT_EQ(store->statistics().entries, 0);
}

TEST_F(DiskStoreTest, WhatAnotherProcessStoredMeanwhileIsKnown) {
  open().reset();  // makes the folder
  DiskIndex index(folder(), SqliteDatabase::Mode::kReadWrite);
  const Ids ids = count_up(1, 30);
  const DiskIndex::Entry entry{.model = "a",
                               .head = "",
                               .key = PrefixDigests(ids).whole(),
                               .hash = hash_tokens(ids),
                               .length = 30,
                               .kind = SnapshotClass::kPrompt,
                               .has_logits = false,
                               .bytes = 1,
                               .file = "one"};
  EXPECT_EQ(index.insert(entry, {}).outcome, DiskIndex::Outcome::kStored);
  const DiskIndex::Inserted again = index.insert(entry, {});
  EXPECT_EQ(again.outcome, DiskIndex::Outcome::kKnown);
  EXPECT_EQ(again.unused, std::vector<std::string>{"one"});
}

TEST_F(DiskStoreTest, ALookupLooksAtTheLengthsOfThePromptNotAtEveryRow) {
  open().reset();  // makes the folder
  DiskIndex index(folder(), SqliteDatabase::Mode::kReadWrite);
  int added = 0;
  const auto add = [&](const std::string& model, const Ids& ids) {
    index.insert({.model = model,
                  .head = "",
                  .key = PrefixDigests(ids).whole(),
                  .hash = hash_tokens(ids),
                  .length = static_cast<int>(ids.size()),
                  .kind = SnapshotClass::kPrompt,
                  .has_logits = false,
                  .bytes = 1,
                  .file = std::to_string(++added)},
                 {});
  };
  std::vector<std::uint64_t> hashes{0};
  for (const TokenId id : count_up(0, 64)) hashes.push_back(extend_hash(hashes.back(), id));
  const auto work = [&] {
    const std::int64_t before = index.search_work();
    EXPECT_EQ(index.candidates("a", 0, hashes).size(), 2u);
    EXPECT_FALSE(index.is_of_other_model("a", hashes));
    return index.search_work() - before;
  };
  add("a", count_up(0, 7));
  add("a", count_up(0, 40));
  for (const char* model : {"a", "b"})
    for (int length = 1; length <= 64; ++length) add(model, count_up(100, length));
  const std::int64_t every_length = work();
  for (const char* model : {"a", "b"})
    for (int i = 0; i < 300; ++i) add(model, count_up(200 + i, 1 + i * 7 % 64));
  for (int length = 65; length < 365; ++length) add("a", count_up(0, length));
  EXPECT_LE(work(), every_length + every_length / 10) << "nine hundred more rows";
  const auto rows = index.candidates("a", 7, hashes);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].length, 40);
  add("b", count_up(0, 64));
  EXPECT_TRUE(index.is_of_other_model("a", hashes));
}

TEST_F(DiskStoreTest, APrefixWithoutTheHistoryIsNamedAsSuch) {
  const auto bare = [&](int n) {
    SequenceState state = states_.state();
    states_.extend(state, count_up(1, n));
    state.history()->restart_at(n - 1);
    return Snapshot::capture(state, count_up(1, n), {}, SnapshotClass::kPrompt);
  };
  const auto store = open();
  store->offer(bare(300));
  store->flush();
  auto answer = store->find(query(count_up(1, 310)));
  EXPECT_FALSE(answer.snapshot);
  EXPECT_TRUE(answer.lacks_history);
  EXPECT_FALSE(store->find(query(count_up(2, 310))).lacks_history);
  EXPECT_EQ(store->find(query(count_up(1, 310), false)).snapshot->length(), 300);
  store->offer(states_.snapshot(count_up(1, 200)));
  store->flush();
  answer = store->find(query(count_up(1, 310)));
  ASSERT_TRUE(answer.snapshot);
  EXPECT_EQ(answer.snapshot->length(), 200);
  EXPECT_TRUE(answer.lacks_history);
  // Once the same ids are stored with their history, nothing is lacking.
  store->offer(states_.snapshot(count_up(1, 300)));
  store->flush();
  answer = store->find(query(count_up(1, 310)));
  ASSERT_TRUE(answer.snapshot);
  EXPECT_EQ(answer.snapshot->length(), 300);
  EXPECT_FALSE(answer.lacks_history);
}

TEST_F(DiskStoreTest, BehindACacheItIsTheSecondTier) {
  {
    PrefixCache cache(1 << 30);
    cache.attach(open());
    cache.store(states_.snapshot(count_up(1, 300), SnapshotClass::kPrompt, {1}));
    EXPECT_FALSE(cache.lookup(count_up(1, 301), true).is_from_disk);
  }
  PrefixCache cache(1 << 30);
  cache.attach(open());
  PrefixMatch match = cache.lookup(count_up(1, 300), true);
  ASSERT_TRUE(match.snapshot);
  EXPECT_TRUE(match.is_from_disk);
  EXPECT_EQ(match.snapshot->logits().size(), 1u);
  match = cache.lookup(count_up(1, 300), true);
  EXPECT_FALSE(match.is_from_disk) << "it stays in memory";
  EXPECT_EQ(cache.counters().disk_hits, 1);
  EXPECT_EQ(cache.counters().hits, 2);
  EXPECT_EQ(cache.counters().exact_hits, 2);
}

TEST_F(DiskStoreTest, TheBudgetHoldsByClassAndUse) {
  const std::int64_t one = bytes_of_one();
  const auto store = open(one * 4);
  store->offer(states_.snapshot(count_up(1, 20), SnapshotClass::kSemantic));
  for (int i = 2; i <= 4; ++i) store->offer(states_.snapshot(count_up(i, 20)));
  store->flush();
  EXPECT_EQ(found(*store, count_up(2, 20)), 20);
  store->offer(states_.snapshot(count_up(5, 20)));
  store->flush();
  EXPECT_EQ(found(*store, count_up(3, 20)), 0) << "least recently used";
  for (const int i : {1, 2, 4, 5}) EXPECT_EQ(found(*store, count_up(i, 20)), 20) << i;
  EXPECT_EQ(store->statistics().evictions, 1);
  EXPECT_LE(store->statistics().bytes, one * 4);
  EXPECT_EQ(files(".snap").size(), 4u) << "evicted files are gone";
  store->offer(states_.snapshot(count_up(1, 3000)));
  store->flush();
  EXPECT_LE(store->statistics().bytes, one * 4);
}

TEST_F(DiskStoreTest, SystemPartsArePinnedInHalfOfTheBudgetOnly) {
  const std::int64_t one = bytes_of_one();
  const auto store = open(one * 4);
  const auto add = [&](int first, SnapshotClass kind) {
    store->offer(states_.snapshot(count_up(first, 20), kind));
    store->flush();
  };
  const auto has = [&](int first) { return found(*store, count_up(first, 20)) == 20; };
  add(1, SnapshotClass::kSystem);
  add(2, SnapshotClass::kSystem);
  for (int first = 10; first < 20; ++first) add(first, SnapshotClass::kSemantic);
  EXPECT_TRUE(has(1) && has(2) && has(18) && has(19));
  // One with the date in it, every day anew.
  for (int first = 30; first < 40; ++first) {
    add(first, SnapshotClass::kSystem);
    add(100 + first, SnapshotClass::kSemantic);
  }
  EXPECT_TRUE(has(139) && has(138)) << "conversations keep their place";
  EXPECT_FALSE(has(1));
}

TEST_F(DiskStoreTest, OthersMakeRoomForWhatIsNew) {
  const std::int64_t one = bytes_of_one();
  {
    const auto store = open(one * 4);
    for (const int first : {1, 2, 3, 4})
      store->offer(states_.snapshot(count_up(first, 20), SnapshotClass::kSemantic));
    store->offer(states_.snapshot(count_up(5, 20), SnapshotClass::kReply));
  }
  const auto store = open(one * 4);
  EXPECT_EQ(found(*store, count_up(5, 20)), 20) << "the last turn is there after a restart";
  EXPECT_EQ(found(*store, count_up(1, 20)), 0);
  EXPECT_EQ(found(*store, count_up(2, 20)), 20);
}

TEST_F(DiskStoreTest, AProcessWithoutADraftHeadAddsNothingToWhatOneWithItStored) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 20), SnapshotClass::kReply));
    store->offer(states_.snapshot(count_up(2, 20)));
  }
  SmallStates headless;
  headless.geometry.draft_head = false;
  headless.pools = StatePools::create(headless.ops, headless.geometry);
  std::int64_t bytes = 0;
  {
    const auto store = open(headless, 1 << 30, "model-a", "");
    bytes = store->statistics().bytes;
    store->offer(headless.snapshot(count_up(1, 20), SnapshotClass::kSemantic));
    store->flush();
    EXPECT_EQ(store->statistics().entries, 2);
    EXPECT_EQ(store->statistics().written_snapshots, 0);
    store->offer(headless.snapshot(count_up(1, 20), SnapshotClass::kPrompt, {1, 2}));
    store->flush();
    EXPECT_EQ(store->statistics().entries, 3) << "logits are more than the other one knows";
  }
  // It was used, and is of the better class.
  const auto store = open(bytes);
  EXPECT_EQ(found(*store, count_up(1, 20)), 20);
  EXPECT_EQ(found(*store, count_up(2, 20)), 0);
}

TEST_F(DiskStoreTest, WhatCannotFitTheBudgetDisplacesNothing) {
  {
    const auto store = open();
    for (int first = 1; first <= 3; ++first) store->offer(states_.snapshot(count_up(first, 20)));
  }
  std::int64_t bytes = open()->statistics().bytes;
  const auto store = open(2 * bytes);
  store->offer(states_.snapshot(count_up(7, 3000), SnapshotClass::kSemantic));
  store->flush();
  EXPECT_EQ(store->statistics().skipped["too-large"], 1);
  EXPECT_EQ(store->statistics().entries, 3);
  EXPECT_EQ(store->statistics().evictions, 0);
}

TEST_F(DiskStoreTest, ASmallerBudgetHoldsFromTheStart) {
  {
    const auto store = open();
    for (int first = 1; first <= 6; ++first) store->offer(states_.snapshot(count_up(first, 20)));
  }
  const std::int64_t bytes = open()->statistics().bytes;
  const auto store = open(bytes / 2);
  EXPECT_EQ(store->statistics().entries, 3);
  EXPECT_LE(store->statistics().bytes, bytes / 2);
  EXPECT_EQ(found(*store, count_up(6, 20)), 20);
  EXPECT_EQ(found(*store, count_up(1, 20)), 0);
}

TEST_F(DiskStoreTest, ABusyQueueCountsOnlyWhatIsNewAndAsksToBeOfferedAgain) {
  const auto base = states_.snapshot(count_up(1, 2048));
  const auto more = states_.extended(*base, count_up(5000, 30));
  std::size_t whole = more->exclusive_bytes();
  for (const KvPageRef& page : more->pages()) whole += page->bytes.size_bytes();
  const DiskStoreOptions options{.folder = folder(),
                                 .budget_bytes = 1 << 30,
                                 .model = "model-a",
                                 .head = "head-a",
                                 .queue_bytes = 2 * static_cast<std::int64_t>(whole)};
  const auto store = open_disk_store(states_.ops, states_.geometry, states_.pools, options);
  // The second one shares the first one's pages, which are on disk or wait to be written.
  EXPECT_TRUE(store->offer(base));
  EXPECT_TRUE(store->offer(more));
  bool refused = false;
  for (int i = 0; i < 50 && !refused; ++i)
    refused = !store->offer(states_.snapshot(count_up(9000 + i, 2048)));
  store->flush();
  EXPECT_EQ(store->statistics().skipped.contains("queue"), refused);
  EXPECT_TRUE(store->offer(states_.snapshot(count_up(100, 2048)))) << "an empty queue takes anything";
  store->flush();
  EXPECT_EQ(found(*store, Ids(more->ids().begin(), more->ids().end())), 2078);
}

TEST_F(DiskStoreTest, OfIntervalsOnlyTheRoundestAreWritten) {
  const auto store = open();
  EXPECT_TRUE(store->offer(states_.snapshot(count_up(1, 128), SnapshotClass::kInterval)));
  EXPECT_TRUE(store->offer(states_.snapshot(count_up(1, kDiskIntervalTokens), SnapshotClass::kInterval)));
  store->flush();
  EXPECT_EQ(store->statistics().written_snapshots, 1);
  EXPECT_EQ(found(*store, count_up(1, kDiskIntervalTokens)), kDiskIntervalTokens);
}

}  // namespace
}  // namespace mererun
