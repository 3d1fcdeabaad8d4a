// The disk store under damaged, lost and foreign files: no wrong state, no crash, no lost earlier entry.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "cache/disk_index.h"
#include "cache/snapshot_image.h"
#include "tests/cache/disk_store_fixture.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using testing::count_up;
using testing::Ids;
using testing::state_bytes;

class DiskDamage : public testing::DiskStoreFixture {};

/// Damages one file at a time and expects: no wrong state, no crash, and every entry that does not need the
/// file.
TEST_F(DiskDamage, DamageIsAMissAndCostsOnlyWhatNeedsTheFile) {  // prefix.corrupt_file_sweep
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
    for (int way = 0; way < 9; ++way) {
      fs::remove_all(folder());
      fs::copy(kept, folder(), fs::copy_options::recursive);
      const fs::path file = files()[f];
      const std::string name = file.filename().string();
      if (name == "lock" || (way > 6 && name == kIndexFile)) continue;
      std::string content = read(file);
      if (content.empty()) continue;
      const std::size_t at = content.size() * static_cast<std::size_t>(way) / 6;
      if (way == 6) {
        fs::remove(file);
      } else if (way == 7) {
        fs::resize_file(file, std::uintmax_t{1} << 36);
      } else if (way == 8) {
        fs::remove(file);
        ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
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
        if (answer.corrupt_entries > 0) ++corrupt;
        if (answer.snapshot) {
          ASSERT_TRUE(
              std::equal(answer.snapshot->ids().begin(), answer.snapshot->ids().end(), prompt.begin()));
          const auto want = states_.snapshot(Ids(prompt.begin(), prompt.begin() + answer.snapshot->length()));
          ASSERT_EQ(state_bytes(answer.snapshot->state()), state_bytes(want->state())) << name;
        }
      }
      // Recomputed and stored again, while what is damaged may still wait to be dropped, everything is as
      // before.
      for (const auto& s : {base, more, lone}) store->offer(s);
      store->flush();
      ASSERT_EQ(found(*store, talk), 580) << name << " way " << way;
      ASSERT_EQ(found(*store, count_up(9000, 30)), 30) << name;
    }
  }
  EXPECT_GT(corrupt, 30);
}

TEST_F(DiskDamage, WhatIsStoredAgainIsNotTakenForTheDamagedOneThatWaitsToGo) {
  const auto lone = states_.snapshot(count_up(9000, 30));
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(folder());
    open()->offer(lone);
    for (const fs::path& file : files(".snap")) testing::write_file(file, "?");
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 2000)));  // keeps the writer busy
    EXPECT_TRUE(store->find(query(count_up(9000, 30))).corrupt_entries > 0);
    store->offer(lone);
    store->flush();
    ASSERT_EQ(found(*store, count_up(9000, 30)), 30) << round;
  }
}

TEST_F(DiskDamage, WhatTheSystemRefusesToReadIsAMissAndStays) {
  const auto store = open();
  store->offer(states_.snapshot(count_up(1, 300)));
  store->flush();
  rlimit was{};
  getrlimit(RLIMIT_NOFILE, &was);
  const rlimit none{3, was.rlim_max};  // every descriptor that a process starts with is taken
  setrlimit(RLIMIT_NOFILE, &none);
  const auto answer = store->find(query(count_up(1, 310)));
  setrlimit(RLIMIT_NOFILE, &was);
  EXPECT_FALSE(answer.snapshot);
  EXPECT_EQ(answer.corrupt_entries, 0);
  store->flush();
  EXPECT_EQ(store->statistics().dropped_corrupt, 0);
  EXPECT_EQ(found(*store, count_up(1, 310)), 300);
}

TEST_F(DiskDamage, EveryDamagedEntryIsCounted) {
  {
    const auto store = open();
    for (const int length : {100, 200, 300}) store->offer(states_.snapshot(count_up(1, length)));
  }
  std::vector<fs::path> snaps = files(".snap");
  ASSERT_EQ(snaps.size(), 3u);
  for (const fs::path& file : snaps) testing::write_file(file, "?");
  const auto store = open();
  EXPECT_EQ(store->find(query(count_up(1, 310))).corrupt_entries, 3);
  EXPECT_EQ(store->statistics().dropped_corrupt, 3);
  store->flush();
  EXPECT_EQ(store->statistics().entries, 0);
  EXPECT_EQ(store->statistics().bytes, 0);
}

/// The folder may be one that the user keeps other things in.
TEST_F(DiskDamage, WhatIsNotItsOwnIsLeftAlone) {
  const std::string hex = "0123456789abcdef0123456789abcdef";
  const std::vector<std::string> foreign{"thesis.tex",
                                         "Documents/thesis.tex",
                                         "Documents/.tmp-notes",
                                         "Documents/one.page",
                                         "Documents/one.snap",
                                         "Documents/lock",
                                         "photos/2020/a.jpg",
                                         "photos/" + hex + "-1.page",
                                         "photos/" + hex + "-" + hex + ".snap",
                                         "other/" + hex + "-" + hex.substr(16) + ".page.bak"};
  for (const std::string& name : foreign) {
    fs::create_directories((folder() / name).parent_path());
    testing::write_file(folder() / name, name);
  }
  const fs::path elsewhere = temp_ / "elsewhere";
  fs::create_directories(elsewhere);
  fs::create_directory_symlink(elsewhere, folder() / "link");
  const std::string rubbish = hex + "-" + hex.substr(16) + ".snap";
  testing::write_file(elsewhere / rubbish, "?");
  fs::create_directories(folder() / "Documents" / ("f" + rubbish.substr(1)));
  for (const char* way : {"new", "known", "rubbish"}) {
    if (std::string(way) == "rubbish") testing::write_file(folder() / kIndexFile, std::string(9000, 'x'));
    testing::write_file(folder() / "model-a" / rubbish, "?");
    testing::write_file(folder() / "model-a" / (".tmp-77-" + hex.substr(16)), "?");
    {
      const auto store = open();
      ASSERT_TRUE(store) << way;
      store->offer(states_.snapshot(count_up(1, 300)));
      store->flush();
      EXPECT_EQ(found(*store, count_up(1, 310)), 300) << way;
    }
    for (const std::string& name : foreign) EXPECT_EQ(read(folder() / name), name) << way;
    EXPECT_TRUE(fs::exists(elsewhere / rubbish)) << way;
    EXPECT_TRUE(fs::exists(folder() / "Documents" / ("f" + rubbish.substr(1)))) << way;
    EXPECT_FALSE(fs::exists(folder() / "model-a" / rubbish)) << "its own rubbish goes";
    EXPECT_FALSE(fs::exists(folder() / "model-a" / (".tmp-77-" + hex.substr(16))));
  }
}

TEST_F(DiskDamage, AFlippedBitOfTheIndexLosesNothing) {
  const std::int64_t budget = 1 << 20;
  {
    const auto store = open();
    for (const int first : {1, 2, 3}) store->offer(states_.snapshot(count_up(first, 300)));
  }
  const fs::path kept = temp_ / "kept";
  fs::copy(folder(), kept, fs::copy_options::recursive);
  const std::string sound = read(kept / kIndexFile);
  int flips = 0;
  for (std::size_t at = 0; at < sound.size(); ++at) {
    if (sound[at] == 0 || at % 41 != 0) continue;  // most of it is empty
    ++flips;
    fs::remove_all(folder());
    fs::copy(kept, folder(), fs::copy_options::recursive);
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    testing::write_file(folder() / kIndexFile, damaged);
    const auto store = open(budget);
    ASSERT_TRUE(store) << at;
    for (const int first : {1, 2, 3})
      EXPECT_EQ(found(*store, count_up(first, 310)), 300) << "byte " << at << ", entry " << first;
  }
  EXPECT_GT(flips, 50);
}

/// The file is sound, what the index says of it is not: stored again, the row is replaced.
TEST_F(DiskDamage, ARowThatContradictsItsKeyGivesWayToWhatIsStoredAgain) {
  const auto lone = states_.snapshot(count_up(9000, 30));
  for (const char* damage :
       {"hash = hash + 1", "length = length + 1", "hash = hash + 1, length = length + 1"}) {
    fs::remove_all(folder());
    open()->offer(lone);
    {
      SqliteDatabase index(folder() / kIndexFile, SqliteDatabase::Mode::kReadWrite);
      index.execute((std::string("UPDATE snapshot SET ") + damage).c_str());
    }
    const auto store = open();
    store->offer(lone);
    store->flush();
    EXPECT_EQ(found(*store, count_up(9000, 40)), 30) << damage;
    EXPECT_EQ(store->statistics().entries, 1) << damage;
    EXPECT_EQ(files(".snap").size(), 1u) << damage;
  }
}

TEST_F(DiskDamage, ACommittedTransactionLeavesALaterOneAlone) {
  SqliteDatabase database(temp_ / "db", SqliteDatabase::Mode::kReadWrite);
  database.execute("CREATE TABLE t(x)");
  auto first = std::make_unique<SqliteTransaction>(database);
  first->commit();
  SqliteTransaction second(database);
  database.execute("INSERT INTO t VALUES(1)");
  first.reset();
  second.commit();
  SqliteStatement rows(database, "SELECT count(*) FROM t");
  EXPECT_TRUE(rows.step());
  EXPECT_EQ(rows.integer(0), 1);
}

TEST_F(DiskDamage, AWarningIsGivenOnce) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  const auto store = open();
  states_.ops.allowed = 0;  // no memory to restore into
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(store->find(query(count_up(1, 310))).snapshot);
  states_.ops.allowed = -1;
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string what = "event=prefix_cache_disk warning=";
  EXPECT_NE(log.find(what), std::string::npos);
  EXPECT_EQ(log.find(what), log.rfind(what)) << log;
}

TEST_F(DiskDamage, ADatabaseOfAnotherProgramIsLeftAlone) {
  for (const int version : {0, 1000}) {
    fs::remove_all(folder());
    fs::create_directories(folder());
    {
      SqliteDatabase other(folder() / kIndexFile, SqliteDatabase::Mode::kReadWrite);
      other.execute("CREATE TABLE notes(text TEXT); INSERT INTO notes VALUES('mine')");
      other.execute(("PRAGMA user_version = " + std::to_string(version)).c_str());
    }
    EXPECT_FALSE(open()) << version;
    SqliteDatabase other(folder() / kIndexFile, SqliteDatabase::Mode::kReadWrite);
    SqliteStatement notes(other, "SELECT text FROM notes");
    EXPECT_TRUE(notes.step());
    EXPECT_EQ(notes.text(0), "mine");
    SqliteStatement tables(other, "SELECT count(*) FROM sqlite_master");
    EXPECT_TRUE(tables.step());
    EXPECT_EQ(tables.integer(0), 1);
  }
}

TEST_F(DiskDamage, AnEntryThatDoesNotNeedADamagedFileStays) {
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
  EXPECT_TRUE(answer.corrupt_entries > 0);
  EXPECT_EQ(found(*store, count_up(9000, 30)), 30);
  store->flush();
  EXPECT_EQ(files(".page").size(), 0u) << "the damaged file is removed";
  EXPECT_EQ(store->statistics().entries, 1) << "and what needed it";
  EXPECT_FALSE(store->find(query(count_up(1, 300))).corrupt_entries > 0) << "and met once";
}

TEST_F(DiskDamage, ASnapshotWithoutItsRecurrentStateIsAMiss) {  // B050
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  const fs::path file = files(".snap").front();
  auto content = SnapshotFile::read_any(file);
  ASSERT_TRUE(content);
  content->image.recurrent.clear();
  SnapshotFile::write(file, content->image, content->model, content->head);
  const auto store = open();
  const auto answer = store->find(query(count_up(1, 310)));
  EXPECT_FALSE(answer.snapshot) << "the keys and values alone are no state";
  EXPECT_TRUE(answer.corrupt_entries > 0);
  store->flush();
  EXPECT_EQ(files(".snap").size() + files(".page").size(), 0u);
}

TEST_F(DiskDamage, ASnapshotWithOtherPagesThanItsLengthNeedsIsAMiss) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  const fs::path file = files(".snap").front();
  auto content = SnapshotFile::read_any(file);
  ASSERT_TRUE(content);
  ASSERT_EQ(content->image.pages.size(), 2u);
  content->image.pages.front() = content->image.pages.back();  // two of the head, none of the trunk
  SnapshotFile::write(file, content->image, content->model, content->head);
  const auto store = open();
  const auto answer = store->find(query(count_up(1, 310)));
  EXPECT_FALSE(answer.snapshot);
  EXPECT_TRUE(answer.corrupt_entries > 0);
}

}  // namespace
}  // namespace mererun
