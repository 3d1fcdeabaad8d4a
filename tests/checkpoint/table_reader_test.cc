#include "checkpoint/table_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "checkpoint/row_cache.h"
#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kRows = 50;  // a shard
constexpr int kCodes = 12, kScales = 4;

/// Three shards of codes and scales, two of them in one file, with bytes that name row and column.
class TableReaderTest : public ::testing::Test {
 protected:
  TableReaderTest() {
    for (int s = 0; s < 3; ++s) {
      const std::filesystem::path path = temp_.path() / (s < 2 ? "one.bin" : "two.bin");
      std::string data = "head";
      if (std::filesystem::exists(path)) {
        std::ifstream old(path, std::ios::binary);
        data.assign(std::istreambuf_iterator<char>(old), {});
      }
      TableShard shard;
      for (const int width : {kCodes, kScales}) {
        shard.arrays.push_back({path, data.size(), static_cast<std::uint64_t>(width)});
        for (int r = 0; r < kRows; ++r)
          for (int i = 0; i < width; ++i) data += byte_of(s * kRows + r, width == kCodes ? i : kCodes + i);
      }
      std::ofstream(path, std::ios::binary) << data;
      shards_.push_back(std::move(shard));
    }
  }

  static char byte_of(int row, int column) { return static_cast<char>(row * 31 + column * 7); }

  static std::vector<std::byte> fetch(TableReader& reader, std::span<const std::int64_t> rows) {
    std::vector<std::byte> out(rows.size() * reader.row_bytes());
    reader.start(rows);
    reader.finish(out);
    return out;
  }

  ErrorCode code_of(const TableOptions& options = {}) {
    try {
      const TableReader reader(shards_, kRows, options);
    } catch (const Error& error) {
      message_ = error.what();
      return error.code();
    }
    return ErrorCode::kInternal;
  }

  TempFolder temp_;
  std::vector<TableShard> shards_;
  std::string message_;
};

TEST_F(TableReaderTest, EveryMethodGivesTheSameBytes) {
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 400; ++i) rows.push_back((i * 37 + i / 9) % (3 * kRows));
  std::vector<std::byte> expected;
  for (const std::int64_t row : rows)
    for (int i = 0; i < kCodes + kScales; ++i)
      expected.push_back(static_cast<std::byte>(byte_of(static_cast<int>(row), i)));
  for (const TableMethod method : {TableMethod::kThreads, TableMethod::kMapped, TableMethod::kMemory}) {
    for (const int cache : {0, 3, 1000}) {
      TableReader reader(shards_, kRows, {.method = method, .threads = 3, .cache_rows = cache});
      EXPECT_EQ(reader.rows(), 3 * kRows);
      EXPECT_EQ(reader.row_bytes(), std::size_t{kCodes + kScales});
      EXPECT_TRUE(fetch(reader, rows) == expected) << name_of(method) << " cache " << cache;
      EXPECT_TRUE(fetch(reader, rows) == expected) << name_of(method) << " again, cache " << cache;
      // One row at a time, as decoding asks.
      for (std::size_t i = 0; i < 20; ++i) {
        const auto one = fetch(reader, std::span(rows).subspan(i, 1));
        EXPECT_TRUE(std::equal(one.begin(), one.end(),
                               expected.begin() + static_cast<std::ptrdiff_t>(i * reader.row_bytes())));
      }
    }
  }
}

TEST_F(TableReaderTest, RepeatsAreReadOnceAndRecentRowsNotAgain) {
  TableReader reader(shards_, kRows, {.threads = 2, .cache_rows = 4});
  const std::vector<std::int64_t> rows{7, 7, 120, 7, 120};
  fetch(reader, rows);
  EXPECT_EQ(reader.statistics().rows, 5u);
  EXPECT_EQ(reader.statistics().distinct, 2u);
  EXPECT_EQ(reader.statistics().reads, 4u) << "two arrays a row";
  EXPECT_EQ(reader.statistics().bytes, 2u * (kCodes + kScales));
  fetch(reader, rows);
  EXPECT_EQ(reader.statistics().reads, 4u);
  EXPECT_EQ(reader.statistics().cached, 2u);
  const std::vector<std::int64_t> others{1, 2, 3, 4};  // push both out
  fetch(reader, others);
  fetch(reader, rows);
  EXPECT_EQ(reader.statistics().reads, 4u + 8u + 4u);
}

TEST_F(TableReaderTest, AnAbandonedFetchLeavesNoTrace) {
  TableReader reader(shards_, kRows, {.threads = 2});
  const std::vector<std::int64_t> first{1, 2, 3}, second{99};
  for (int i = 0; i < 50; ++i) {
    reader.start(first);
    EXPECT_EQ(fetch(reader, second)[0], static_cast<std::byte>(byte_of(99, 0)));
  }
}

TEST_F(TableReaderTest, AnnouncedRowsAreReadOnceAndBeforeTheyAreAskedFor) {
  TableReader reader(shards_, kRows, {.threads = 3, .cache_rows = 16});
  const std::vector<std::int64_t> rows{4, 140, 4, 77, 9};
  for (int i = 0; i < 3; ++i) reader.expect(rows);
  EXPECT_EQ(reader.statistics().ahead, 4u) << "repeats and rows under way are no news";
  EXPECT_EQ(reader.statistics().reads, 8u);
  const std::vector<std::byte> got = fetch(reader, rows);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(got[r * reader.row_bytes()], static_cast<std::byte>(byte_of(static_cast<int>(rows[r]), 0)));
    EXPECT_EQ(got[(r + 1) * reader.row_bytes() - 1],
              static_cast<std::byte>(byte_of(static_cast<int>(rows[r]), kCodes + kScales - 1)));
  }
  EXPECT_EQ(reader.statistics().cached, 4u);
  EXPECT_EQ(reader.statistics().reads, 8u) << "nothing was read again";
}

TEST_F(TableReaderTest, AnnouncementsThatNeverComeTrueChangeNothing) {
  TableReader plain(shards_, kRows, {.threads = 2, .cache_rows = 0});
  TableReader reader(shards_, kRows, {.threads = 2, .cache_rows = 10});
  std::vector<std::int64_t> wanted, announced;
  for (int i = 0; i < 300; ++i) {
    // More than the cache holds, partly right, also between a start and its finish.
    announced.clear();
    wanted.clear();
    for (int j = 0; j < i % 9; ++j) announced.push_back((i * 53 + j * 17) % (3 * kRows));
    for (int j = 0; j < 1 + i % 6; ++j) wanted.push_back((i * 53 + j * (i % 2 == 0 ? 17 : 29)) % (3 * kRows));
    reader.expect(announced);
    if (i % 7 == 0) {
      reader.start(announced);
      reader.expect(wanted);
    }
    ASSERT_TRUE(fetch(reader, wanted) == fetch(plain, wanted)) << i;
  }
  EXPECT_GT(reader.statistics().ahead, 100u);
}

TEST_F(TableReaderTest, AtMostHalfOfTheCacheIsFetchedAheadAtOnce) {
  TableReader reader(shards_, kRows, {.threads = 2, .cache_rows = 10});
  const std::vector<std::int64_t> rows{1, 2, 3, 4, 5, 6, 7, 8};
  reader.expect(rows);
  EXPECT_EQ(reader.statistics().ahead, 5u);
  for (const TableOptions& options :
       {TableOptions{.cache_rows = 0}, TableOptions{.method = TableMethod::kMapped}}) {
    TableReader none(shards_, kRows, options);
    none.expect(rows);
    EXPECT_EQ(none.statistics().reads, 0u);
  }
}

TEST_F(TableReaderTest, AnAnnouncedRowThatCannotBeReadFailsWhereItIsAskedFor) {
  TableReader reader(shards_, kRows, {.threads = 2, .cache_rows = 20});
  std::filesystem::resize_file(temp_.path() / "two.bin", 10);
  const std::vector<std::int64_t> bad{2 * kRows + 5, 2 * kRows + 6}, good{1, 2};
  reader.expect(bad);
  reader.expect(good);
  EXPECT_EQ(fetch(reader, good)[0], static_cast<std::byte>(byte_of(1, 0)));
  for (int i = 0; i < 2; ++i) {
    try {
      fetch(reader, bad);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr("two.bin"));
    }
  }
}

TEST(RowCache, TheOldestRowGoesUnlessItIsBeingRead) {
  RowCache cache(2, 8);
  const auto first = cache.claim(10, 1);
  ASSERT_TRUE(first && cache.claim(11, 0));
  EXPECT_FALSE(cache.claim(12, 0)) << "reads still write to the oldest slot";
  cache.settle(*first, true);
  EXPECT_EQ(cache.claim(12, 0), first);
  EXPECT_FALSE(cache.find(10));
  EXPECT_TRUE(cache.find(11) && cache.find(12));
  const auto failed = cache.claim(13, 2);
  cache.settle(*failed, false);
  EXPECT_FALSE(cache.find(13));
  EXPECT_FALSE(RowCache(0, 8).claim(1, 0));
}

TEST_F(TableReaderTest, RowsOutsideTheTableAreRefused) {
  TableReader reader(shards_, kRows, {});
  for (const std::int64_t row : {std::int64_t{-1}, std::int64_t{3 * kRows}}) {
    for (const auto call : {&TableReader::start, &TableReader::expect}) {
      try {
        (reader.*call)({&row, 1});
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
  }
}

TEST_F(TableReaderTest, MemoryDoesNotGrowWithTheTable) {
  const auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    std::int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  };
  // A gigabyte that takes no room: the file has no data yet.
  constexpr std::int64_t kManyRows = std::int64_t{1} << 24;
  const std::filesystem::path path = temp_.write("large.bin", "");
  std::filesystem::resize_file(path, kManyRows * 64);
  const std::int64_t before = resident_bytes();
  TableReader reader({{{{path, 0, 64}}}}, kManyRows, {.threads = 2});
  std::vector<std::int64_t> rows(64);
  for (int i = 0; i < 2000; ++i) {
    for (std::size_t j = 0; j < rows.size(); ++j)
      rows[j] = (i * 64 + static_cast<std::int64_t>(j)) * 40503 % kManyRows;
    if (i % 2 == 0) reader.expect(rows);
    fetch(reader, rows);
  }
  EXPECT_LT(resident_bytes() - before, kManyRows * 64 / 8) << "2 MB, and what a sanitizer keeps beside them";
}

TEST_F(TableReaderTest, AMissingOrShortFileIsOneErrorThatNamesIt) {
  std::filesystem::resize_file(temp_.path() / "two.bin",
                               std::filesystem::file_size(temp_.path() / "two.bin") - 1);
  for (const TableMethod method : {TableMethod::kThreads, TableMethod::kMapped, TableMethod::kMemory}) {
    EXPECT_EQ(code_of({.method = method}), ErrorCode::kCorruptData);
    EXPECT_THAT(message_, HasSubstr("two.bin: expected at least 804 bytes of table, got 803"));
  }
  std::filesystem::remove(temp_.path() / "two.bin");
  EXPECT_EQ(code_of(), ErrorCode::kNotFound);
  EXPECT_THAT(message_, HasSubstr("two.bin"));
  std::filesystem::create_directory(temp_.path() / "two.bin");
  EXPECT_EQ(code_of(), ErrorCode::kIo) << "a folder is no table";
}

TEST_F(TableReaderTest, AFileThatShrinksLaterIsAnIoError) {
  TableReader reader(shards_, kRows, {.cache_rows = 0});
  std::filesystem::resize_file(temp_.path() / "two.bin", 10);
  const std::vector<std::int64_t> rows{1, 2 * kRows + 5};
  reader.start(rows);
  std::vector<std::byte> out(rows.size() * reader.row_bytes());
  try {
    reader.finish(out);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("two.bin"));
  }
  // Rows of the other file are still served.
  const std::vector<std::int64_t> good{1};
  EXPECT_EQ(fetch(reader, good)[0], static_cast<std::byte>(byte_of(1, 0)));
}

}  // namespace
}  // namespace mererun
