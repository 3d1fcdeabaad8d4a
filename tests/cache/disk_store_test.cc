// The disk store on snapshots of a few kilobytes: what comes back, what it costs, and what damage does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "cache/disk_store.h"
#include "cache/prefix_cache.h"
#include "tests/cache/small_states.h"
#include "tests/support/models.h"
#include "tests/support/temp_folder.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using testing::count_up;
using testing::SmallStates;
using testing::state_bytes;

using Ids = std::vector<TokenId>;

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class DiskStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<DiskStore> open(std::int64_t budget = 1 << 30, const std::string& model = "model-a",
                                  const std::string& head = "head-a") {
    return open(states_, budget, model, head);
  }
  std::unique_ptr<DiskStore> open(SmallStates& states, std::int64_t budget = 1 << 30,
                                  const std::string& model = "model-a", const std::string& head = "head-a") {
    return open_disk_store(states.ops, states.geometry, states.pools,
                           {.folder = folder(), .budget_bytes = budget, .model = model, .head = head});
  }
  fs::path folder() const { return temp_ / "store"; }
  static SnapshotTier::Query query(const Ids& prompt, bool needs_history = true) {
    return {.prompt = prompt, .longer_than = 0, .needs_history = needs_history, .base = nullptr};
  }
  int found(DiskStore& store, const Ids& prompt) {
    const auto answer = store.find(query(prompt));
    return answer.snapshot ? answer.snapshot->length() : 0;
  }
  /// Expects exactly the state of a snapshot made afresh.
  void expect_equal(const Snapshot& got) {
    const auto want = states_.snapshot(Ids(got.ids().begin(), got.ids().end()));
    EXPECT_EQ(state_bytes(got.state()), state_bytes(want->state())) << got.length();
    EXPECT_TRUE(got.has_whole_history());
  }
  std::vector<fs::path> files(const char* extension = nullptr) const {
    std::vector<fs::path> out;
    for (const auto& file : fs::recursive_directory_iterator(folder()))
      if (file.is_regular_file() && (extension == nullptr || file.path().extension() == extension))
        out.push_back(file.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  testing::TempFolder temp_;
  SmallStates states_;
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
  expect_equal(*states_.snapshot(prompt));
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
  EXPECT_EQ(answer.snapshot->length(), 300);
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
  std::int64_t one = 0;
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 20)));
    store->flush();
    one = store->statistics().bytes;
  }
  fs::remove_all(folder());
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

/// Damages one file at a time and expects: no wrong state, no crash, and every entry that does not need the
/// file.
TEST_F(DiskStoreTest, DamageIsAMissAndCostsOnlyWhatNeedsTheFile) {  // prefix.corrupt_file_sweep
  const auto base = states_.snapshot(count_up(1, 520));
  const auto more = states_.extended(*base, count_up(3000, 60));
  const auto lone = states_.snapshot(count_up(9000, 30));
  {
    const auto store = open();
    for (const auto& s : {base, more, lone}) store->offer(s);
  }
  const fs::path kept = temp_ / "kept";
  fs::copy(folder(), kept, fs::copy_options::recursive);
  const Ids talk(more->ids().begin(), more->ids().end());
  const std::size_t count = files().size();
  int corrupt = 0;
  for (std::size_t f = 0; f < count; ++f) {
    for (int way = 0; way < 7; ++way) {
      fs::remove_all(folder());
      fs::copy(kept, folder(), fs::copy_options::recursive);
      const fs::path file = files()[f];
      const std::string name = file.filename().string();
      if (name == "lock") continue;
      std::string content = read(file);
      if (content.empty()) continue;
      const std::size_t at = content.size() * static_cast<std::size_t>(way) / 6;
      if (way == 6) {
        fs::remove(file);
      } else if (way % 2 == 0) {
        content[std::min(at, content.size() - 1)] ^= 0x10;
        testing::write_file(file, content);
      } else {
        testing::write_file(file, content.substr(0, at));
      }
      const auto store = open();
      ASSERT_TRUE(store) << name << " way " << way;
      for (const Ids& prompt : {talk, Ids(base->ids().begin(), base->ids().end()), count_up(9000, 30)}) {
        const auto answer = store->find(query(prompt));
        if (answer.met_corrupt) ++corrupt;
        if (answer.snapshot) {
          ASSERT_TRUE(
              std::equal(answer.snapshot->ids().begin(), answer.snapshot->ids().end(), prompt.begin()));
          const auto want = states_.snapshot(Ids(prompt.begin(), prompt.begin() + answer.snapshot->length()));
          ASSERT_EQ(state_bytes(answer.snapshot->state()), state_bytes(want->state())) << name;
        }
      }
      store->flush();
      // Recomputed and stored again, everything is as before.
      for (const auto& s : {base, more, lone}) store->offer(s);
      store->flush();
      ASSERT_EQ(found(*store, talk), 580) << name << " way " << way;
      ASSERT_EQ(found(*store, count_up(9000, 30)), 30) << name;
    }
  }
  EXPECT_GT(corrupt, 30);
}

TEST_F(DiskStoreTest, AnEntryThatDoesNotNeedADamagedFileStays) {
  const auto lone = states_.snapshot(count_up(9000, 30));
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
    store->offer(lone);
  }
  const fs::path page = files(".page").front();
  testing::write_file(page, read(page).substr(0, 100));
  const auto store = open();
  const auto answer = store->find(query(count_up(1, 300)));
  EXPECT_FALSE(answer.snapshot);
  EXPECT_TRUE(answer.met_corrupt);
  EXPECT_EQ(found(*store, count_up(9000, 30)), 30);
  store->flush();
  EXPECT_EQ(files(".page").size(), 0u) << "the damaged file is removed";
  EXPECT_FALSE(store->find(query(count_up(1, 300))).met_corrupt) << "and met once";
}

TEST_F(DiskStoreTest, ALostIndexIsBuiltAnew) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
    store->offer(states_.snapshot(count_up(1, 700)));
  }
  for (const char* way : {"gone", "rubbish"}) {
    for (const char* suffix : {"", "-wal", "-shm"})
      fs::remove(folder() / (std::string("index.sqlite") + suffix));
    if (std::string(way) == "rubbish") testing::write_file(folder() / "index.sqlite", std::string(9000, 'x'));
    const auto store = open();
    ASSERT_TRUE(store) << way;
    EXPECT_EQ(found(*store, count_up(1, 800)), 700) << way;
    EXPECT_EQ(found(*store, count_up(1, 400)), 300) << way;
  }
}

TEST_F(DiskStoreTest, AFullDiskLosesTheNewEntryOnly) {
  SmallStates wide(32);  // pages of 69 kB, more than the index's own files need
  {
    const auto store = open(wide);
    store->offer(wide.snapshot(count_up(1, 200)));
  }
  for (const rlim_t limit : {rlim_t{100}, rlim_t{40000}, rlim_t{60000}}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit small{limit, limit};
      setrlimit(RLIMIT_FSIZE, &small);
      signal(SIGXFSZ, SIG_IGN);
      {
        const auto store = open(wide);
        if (store) {
          store->offer(wide.snapshot(count_up(50, 900)));
          store->flush();
          if (!store->statistics().skipped.contains("failed")) _exit(2);
          if (found(*store, count_up(1, 300)) != 200) _exit(3);
          if (found(*store, count_up(50, 900)) != 0) _exit(4);
        } else if (limit > 32768) {
          _exit(5);
        }
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "limit " << limit << " status " << status;
    const auto store = open(wide);
    EXPECT_EQ(found(*store, count_up(1, 300)), 200);
    EXPECT_EQ(found(*store, count_up(50, 900)), 0);
  }
}

TEST_F(DiskStoreTest, AReadOnlyFolderIsRead) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  fs::permissions(temp_.path(), fs::perms(0755));
  for (const auto& entry : fs::recursive_directory_iterator(folder()))
    fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0555) : fs::perms(0444));
  fs::permissions(folder(), fs::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
      _exit(9);  // the superuser may write anywhere
    const auto store = open();
    if (!store) _exit(2);
    if (found(*store, count_up(1, 310)) != 300) _exit(3);
    store->offer(states_.snapshot(count_up(1, 400)));
    store->flush();
    if (found(*store, count_up(1, 400)) != 300) _exit(4);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  fs::permissions(folder(), fs::perms(0755));
  for (const auto& entry : fs::recursive_directory_iterator(folder()))
    fs::permissions(entry.path(), fs::perms(0755));
}

TEST_F(DiskStoreTest, AFolderThatCannotBeMadeIsNotUsed) {
  testing::write_file(temp_ / "store", "a file");
  EXPECT_FALSE(open());
}

TEST_F(DiskStoreTest, KilledAtAnyMomentNothingEarlierIsLost) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  std::uint64_t x = 7;
  int complete = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      const auto store = open();
      for (int i = 0;; ++i) store->offer(states_.snapshot(count_up(100 + round, 270 + i % 300)));
    }
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    std::this_thread::sleep_for(std::chrono::microseconds(500 + (x >> 33) % 60000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto store = open();
    ASSERT_TRUE(store);
    ASSERT_EQ(found(*store, count_up(1, 310)), 300) << "round " << round;
    const auto answer = store->find(query(count_up(100 + round, 600)));
    EXPECT_FALSE(answer.met_corrupt) << "half-written files are unknown, not damaged";
    if (answer.snapshot) {
      ++complete;
      expect_equal(*answer.snapshot);
    }
    for (const fs::path& file : files()) EXPECT_FALSE(file.filename().string().starts_with(".tmp-")) << file;
  }
  EXPECT_GT(complete, 0) << "some were killed late enough to have stored something";
}

TEST_F(DiskStoreTest, TwoProcessesShareAFolder) {
  constexpr int kEach = 25;
  std::vector<pid_t> children;
  const std::int64_t budget = 1 << 24;
  for (int process = 0; process < 2; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      const auto store = open(budget);
      if (!store) _exit(2);
      for (int i = 0; i < kEach; ++i) {
        // Both write the same conversation and one of their own.
        store->offer(states_.snapshot(count_up(1, 260 + i)));
        store->offer(states_.snapshot(count_up(1000 * (process + 1), 260 + i)));
        const auto answer = store->find(query(count_up(1, 300)));
        if (answer.met_corrupt) _exit(3);
        if (answer.snapshot) {
          const auto want = states_.snapshot(count_up(1, answer.snapshot->length()));
          if (state_bytes(want->state()) != state_bytes(answer.snapshot->state())) _exit(4);
        }
      }
      store->flush();
      if (store->statistics().skipped.contains("failed")) _exit(5);
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const auto store = open(budget);
  for (const int first : {1, 1000, 2000}) EXPECT_EQ(found(*store, count_up(first, 900)), 260 + kEach - 1);
  EXPECT_EQ(files(".snap").size(), 3u * kEach) << "the shared conversation is stored once";
  EXPECT_EQ(files(".page").size(), 3u * 2u);
}

}  // namespace
}  // namespace mererun
