#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

/// Work whose thread cannot be started once `left` copies were made.
struct CopiedTooOften {
  CopiedTooOften(int* copies_left, std::atomic<bool>* is_over) : left(copies_left), over(is_over) {}
  CopiedTooOften(const CopiedTooOften& other) : left(other.left), over(other.over) {
    if ((*left)-- == 0) throw std::runtime_error("no more of them");
  }
  void operator()(int) const { over->wait(false); }

  int* left;
  std::atomic<bool>* over;
};

TEST(StartThreads, AfterAFailureThoseThatRunAreStoppedAndJoined) {
  for (const int started : {0, 1, 3}) {
    std::atomic<bool> over{false};
    int left = 1000;
    const std::function<void(int)> work = CopiedTooOften(&left, &over);
    left = started;
    int stops = 0;
    try {
      start_threads(5, work, [&] {
        ++stops;
        over = true;
        over.notify_all();
      });
      ADD_FAILURE() << "all started";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
      EXPECT_EQ(std::string(error.what()),
                "threads of the program: expected 5, got " + std::to_string(started) + " (no more of them)");
    }
    EXPECT_EQ(stops, 1);
  }
}

TEST(ThreadPool, ThreadsThatTheSystemRefusesAreAnError) {
  pthread_attr_t normal, huge;
  ASSERT_EQ(pthread_getattr_default_np(&normal), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);  // no process has room for it
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  try {
    const ThreadPool pool(3);
    ADD_FAILURE() << "started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
  }
  ASSERT_EQ(pthread_setattr_default_np(&normal), 0);
  const ThreadPool pool(3);
  EXPECT_EQ(pool.size(), 3);
}

TEST(ThreadPool, EveryIndexOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t n :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, std::int64_t{1000}}) {
      std::vector<int> seen(static_cast<std::size_t>(n));
      pool.parallel_for(n, [&](std::int64_t begin, std::int64_t end, int worker) {
        ASSERT_LT(begin, end);
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
      });
      for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], 1);
    }
  }
}

// Far more threads than cores: most rounds end before most workers have woken up.
TEST(ThreadPool, WorkersThatSleepThroughRoundsDisturbNoLaterOne) {
  constexpr int kThreads = 48, kRounds = 3000;
  std::vector<std::atomic<int>> busy(kThreads);
  std::vector<std::int64_t> sums(kThreads);
  std::atomic<bool> overlapped{false};
  {
    ThreadPool pool(kThreads);
    for (int round = 1; round <= kRounds; ++round) {
      std::int64_t expected = round;  // read by the body: a stale call would see another round's
      pool.parallel_for(kThreads, [&, round](std::int64_t begin, std::int64_t end, int worker) {
        auto& flag = busy[static_cast<std::size_t>(worker)];
        if (flag.fetch_add(1) != 0) overlapped = true;
        for (std::int64_t i = begin; i < end; ++i)
          sums[static_cast<std::size_t>(i)] += expected == round ? 1 : 1000000;
        flag.fetch_sub(1);
      });
      expected = -1;
    }
  }  // destroyed at once, some workers still on their way
  EXPECT_FALSE(overlapped);
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, kRounds);
}

// A part that takes far longer than the others looks like a lost core: the loops after it run on the caller,
// and later ones on all workers again.
TEST(ThreadPool, WorksAloneForAWhileAfterALongWait) {
  ThreadPool pool(2);
  const auto lose_a_core = [&] {
    std::atomic<bool> begun{false};
    pool.parallel_for(2, [&](std::int64_t begin, std::int64_t, int) {
      if (begin == 1) {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      } else {
        while (!begun) std::this_thread::yield();  // so that the other worker has taken its part
      }
    });
  };
  const auto parts_of_a_loop = [&] {
    std::atomic<int> parts{0};
    pool.parallel_for(1000, [&](std::int64_t, std::int64_t, int) { ++parts; });
    return parts.load();
  };
  bool worked_alone = false;
  for (int attempt = 0; attempt < 50 && !worked_alone; ++attempt) {  // this thread may lose its core as well
    lose_a_core();
    worked_alone = parts_of_a_loop() == 1;
  }
  EXPECT_TRUE(worked_alone);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(parts_of_a_loop(), 2);
}

TEST(ThreadPool, ManyShortLoopsAndLongPauses) {
  ThreadPool pool(3);
  std::vector<std::int64_t> sums(3);
  for (int round = 0; round < 2000; ++round) {
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough to park
    pool.parallel_for(3, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) sums[static_cast<std::size_t>(i)] += i + 1;
    });
  }
  EXPECT_EQ(sums, (std::vector<std::int64_t>{2000, 4000, 6000}));
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int failing = 0; failing < 3; ++failing) {
    EXPECT_THROW(pool.parallel_for(3,
                                   [&](std::int64_t begin, std::int64_t, int) {
                                     if (begin == failing) throw std::runtime_error("boom");
                                   }),
                 std::runtime_error);
    int calls = 0;
    pool.parallel_for(1, [&](std::int64_t, std::int64_t, int) { ++calls; });
    EXPECT_EQ(calls, 1);
  }
}

/// What `count` gives in a thread that may run on the first `cpus` of this process's hardware threads.
int on_cpus(int cpus, const std::function<int()>& count) {
  int result = 0;
  std::thread([&] {
    cpu_set_t all, some;
    CPU_ZERO(&some);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < cpus; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
    }
    if (sched_setaffinity(0, sizeof some, &some) == 0) result = count();
  }).join();
  return result;
}

// More threads than the process may run on only wait for each other.
TEST(UsableThreads, AreNoMoreThanTheProcessMayRunOn) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_LE(usable_threads(1000), CPU_COUNT(&allowed));
  for (const int asked : {0, 1, 2, 1000}) {
    EXPECT_EQ(on_cpus(1, [&] { return usable_threads(asked); }), 1);
    const int two = on_cpus(2, [&] { return usable_threads(asked); });
    EXPECT_GE(two, 1);
    EXPECT_LE(two, std::min(2, usable_threads(1000)));
  }
  EXPECT_EQ(usable_threads(1), 1);
  EXPECT_EQ(usable_threads(0), physical_core_count());
  EXPECT_GE(usable_threads(1000), physical_core_count());
}

TEST(ThreadPool, DefaultsToThePhysicalCores) {
  EXPECT_GE(physical_core_count(), 1);
  EXPECT_EQ(ThreadPool(0).size(), physical_core_count());
}

}  // namespace
}  // namespace mererun
