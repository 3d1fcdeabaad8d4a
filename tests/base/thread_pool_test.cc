#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <vector>

namespace mererun {
namespace {

TEST(ThreadPool, EveryIndexOnceInStaticParts) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t n :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, std::int64_t{1000}}) {
      std::vector<int> seen(static_cast<std::size_t>(n)), owner(static_cast<std::size_t>(n), -1);
      pool.parallel_for(n, [&](std::int64_t begin, std::int64_t end, int worker) {
        ASSERT_LT(begin, end);
        for (std::int64_t i = begin; i < end; ++i) {
          ++seen[static_cast<std::size_t>(i)];
          owner[static_cast<std::size_t>(i)] = worker;
        }
      });
      for (std::int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(seen[static_cast<std::size_t>(i)], 1);
        if (i > 0) {
          EXPECT_GE(owner[static_cast<std::size_t>(i)], owner[static_cast<std::size_t>(i) - 1]);
        }
      }
    }
  }
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

TEST(ThreadPool, DefaultsToThePhysicalCores) {
  EXPECT_GE(physical_core_count(), 1);
  EXPECT_EQ(ThreadPool(0).size(), physical_core_count());
}

}  // namespace
}  // namespace mererun
