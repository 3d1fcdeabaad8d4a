// The disk store under lost indexes, full and read-only disks, kills and other processes: no wrong state, no
// crash, no lost earlier entry.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "cache/disk_index.h"
#include "tests/cache/disk_store_fixture.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;
using testing::count_up;
using testing::Ids;
using testing::SmallStates;
using testing::state_bytes;

class DiskFaults : public testing::DiskStoreFixture {};

TEST_F(DiskFaults, ALostIndexIsBuiltAnew) {
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

TEST_F(DiskFaults, ARebuildingThatTheFullDiskCutsShortLosesNothing) {
  {
    const auto store = open();
    for (const int first : {1, 2, 3, 4, 5, 6}) store->offer(states_.snapshot(count_up(first, 300)));
  }
  for (const rlim_t limit : {rlim_t{100}, rlim_t{33000}, rlim_t{60000}, rlim_t{90000}}) {
    fs::remove(folder() / "index.sqlite");
    const pid_t child = fork();
    if (child == 0) {
      const rlimit small{limit, limit};
      setrlimit(RLIMIT_FSIZE, &small);
      open();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "limit " << limit << " status " << status;
    const auto store = open();
    for (const int first : {1, 2, 3, 4, 5, 6})
      ASSERT_EQ(found(*store, count_up(first, 310)), 300) << "limit " << limit;
  }
}

/// A killed process leaves what is newest in the index's log alone.
class DiskFaultsAfterAKill : public DiskFaults {
 protected:
  void write_and_be_killed() {
    const pid_t child = fork();
    if (child == 0) {
      const auto store = open();
      for (const int first : {1, 2, 3}) store->offer(states_.snapshot(count_up(first, 300)));
      store->flush();
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
    ASSERT_GT(fs::file_size(folder() / "index.sqlite-wal"), 1000u);
  }
};

TEST_F(DiskFaultsAfterAKill, ADamagedLogOfTheIndexLosesNothing) {
  for (int way = 0; way < 12; ++way) {
    fs::remove_all(folder());
    write_and_be_killed();
    const fs::path log = folder() / "index.sqlite-wal";
    std::string content = read(log);
    const std::size_t at = content.size() * static_cast<std::size_t>(way / 2) / 5;
    if (way % 2 == 0) {
      testing::write_file(log, content.substr(0, at));
    } else {
      content[std::min(at, content.size() - 1)] ^= 0x10;
      testing::write_file(log, content);
    }
    const auto store = open();
    ASSERT_TRUE(store) << way;
    for (const int first : {1, 2, 3}) EXPECT_EQ(found(*store, count_up(first, 310)), 300) << way;
    EXPECT_EQ(store->statistics().entries, 3) << way;
    EXPECT_EQ(files(".snap").size(), 3u) << way;
  }
}

TEST_F(DiskFaults, ARebuiltIndexHoldsTheBudgetToo) {
  {
    const auto store = open();
    for (int first = 1; first <= 6; ++first) store->offer(states_.snapshot(count_up(first, 20)));
  }
  const std::int64_t bytes = open()->statistics().bytes;
  fs::remove(folder() / kIndexFile);
  const auto store = open(bytes / 2);
  EXPECT_EQ(store->statistics().entries, 3);
  EXPECT_EQ(files(".snap").size(), 3u);
}

TEST_F(DiskFaults, AFullDiskLosesTheNewEntryOnly) {
  SmallStates wide(32);  // pages of 69 kB, more than the index's own files need
  {
    const auto store = open(wide);
    store->offer(wide.snapshot(count_up(1, 200)));
  }
  for (const rlim_t limit : {rlim_t{100}, rlim_t{40000}, rlim_t{60000}}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit small{limit, limit};
      setrlimit(RLIMIT_FSIZE, &small);  // the signal would end the process
      {
        const auto store = open(wide);
        if (!store) _exit(5);
        store->offer(wide.snapshot(count_up(50, 900)));
        store->flush();
        // The index's log needs 32 KiB: with less the folder is only read, and nothing is tried.
        if (store->statistics().skipped.contains("failed") != (limit > 32768)) _exit(2);
        if (found(*store, count_up(1, 300)) != 200) _exit(3);
        if (found(*store, count_up(50, 900)) != 0) _exit(4);
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

class DiskFaultsReadOnly : public DiskFaultsAfterAKill {
 protected:
  /// What a user that may only read finds of 300 stored tokens; status 0 if all is as it must be.
  int read_as_guest() {
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
    fs::permissions(folder(), fs::perms(0755));
    for (const auto& entry : fs::recursive_directory_iterator(folder()))
      fs::permissions(entry.path(), fs::perms(0755));
    return status;
  }
};

TEST_F(DiskFaultsReadOnly, AReadOnlyFolderIsRead) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  EXPECT_EQ(read_as_guest(), 0);
}

TEST_F(DiskFaultsReadOnly, SoIsWhatAKilledProcessLeft) {
  write_and_be_killed();
  EXPECT_EQ(read_as_guest(), 0);
}

TEST_F(DiskFaults, AFolderThatCannotBeMadeIsNotUsed) {
  testing::write_file(temp_ / "store", "a file");
  EXPECT_FALSE(open());
}

TEST_F(DiskFaults, KilledAtAnyMomentNothingEarlierIsLost) {
  {
    const auto store = open();
    store->offer(states_.snapshot(count_up(1, 300)));
  }
  std::uint64_t x = 7;
  for (int round = 0; round < 40; ++round) {
    int reports[2];
    ASSERT_EQ(pipe(reports), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto store = open();
      for (int i = 0;; ++i) {
        store->offer(states_.snapshot(count_up(100 + round, 270 + i % 300)));
        if (i % 3 != 0) continue;
        store->flush();
        if (write(reports[1], "+", 1) != 1) _exit(1);
      }
    }
    close(reports[1]);
    // The moment is random; how much must have been stored by then is not.
    const int reported = round % 4;
    char report = 0;
    for (int i = 0; i < reported; ++i) ASSERT_EQ(::read(reports[0], &report, 1), 1);
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    std::this_thread::sleep_for(std::chrono::microseconds((x >> 33) % 30000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(reports[0]);
    const auto store = open();
    ASSERT_TRUE(store);
    ASSERT_EQ(found(*store, count_up(1, 310)), 300) << "round " << round;
    const auto answer = store->find(query(count_up(100 + round, 600)));
    EXPECT_FALSE(answer.corrupt_entries > 0) << "half-written files are unknown, not damaged";
    if (reported > 0) {
      ASSERT_TRUE(answer.snapshot);
      EXPECT_GE(answer.snapshot->length(), 270 + 3 * (reported - 1)) << "what was flushed is kept";
    }
    if (answer.snapshot) expect_equal(*answer.snapshot);
    for (const fs::path& file : files()) EXPECT_FALSE(file.filename().string().starts_with(".tmp-")) << file;
  }
}

/// The process that leaves must not take itself for the last one and remove the log that the other still
/// writes.
TEST_F(DiskFaults, WhatAProcessWritesAfterAnotherLeftIsKept) {
  int commands[2], reports[2];
  ASSERT_EQ(pipe(commands), 0);
  ASSERT_EQ(pipe(reports), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    const auto store = open();
    char command = 0;
    for (int i = 0;; ++i) {
      store->offer(states_.snapshot(count_up(100 + 1000 * i, 300)));
      store->flush();
      if (write(reports[1], "+", 1) != 1 || ::read(commands[0], &command, 1) != 1) _exit(1);
    }
  }
  char report = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(::read(reports[0], &report, 1), 1);
    const pid_t visitor = fork();
    if (visitor == 0) {
      bool sees_all = true;
      {
        const auto store = open();
        for (int k = 0; k <= i; ++k) sees_all &= found(*store, count_up(100 + 1000 * k, 310)) == 300;
        store->offer(states_.snapshot(count_up(100000 + 1000 * i, 280)));
      }
      _exit(sees_all ? 0 : 1);
    }
    int status = 0;
    waitpid(visitor, &status, 0);
    EXPECT_EQ(status, 0) << i;
    if (i < 3) {
      ASSERT_EQ(write(commands[1], "+", 1), 1);
    }
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  const auto store = open();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(found(*store, count_up(100 + 1000 * i, 310)), 300) << i;
    EXPECT_EQ(found(*store, count_up(100000 + 1000 * i, 290)), 280) << i;
  }
}

TEST_F(DiskFaults, TwoProcessesShareAFolder) {
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
        if (answer.corrupt_entries > 0) _exit(3);
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
