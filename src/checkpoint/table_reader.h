#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace mererun {

/// One array of a stored matrix: rows of equal size, one after the other, in a file.
struct TableArray {
  std::filesystem::path path;
  std::uint64_t offset = 0;     // of row 0 in the file
  std::uint64_t row_bytes = 0;  // > 0
};

/// Rows that lie together; a row is the concatenation of its arrays' rows (codes, scales, biases).
struct TableShard {
  std::vector<TableArray> arrays;
};

/// How rows are fetched. Every method returns the same bytes.
enum class TableMethod {
  kThreads,  // positioned reads by a few threads
  kMapped,   // copies out of a mapping: page faults in the caller
  kMemory,   // the whole table in memory, for comparison
};
/// "threads", "mapped" or "memory".
std::string_view name_of(TableMethod method);

struct TableOptions {
  TableMethod method = TableMethod::kThreads;
  int threads = 8;  // of kThreads
  /// Rows kept from earlier fetches, or read ahead of the next ones; 0: none.
  int cache_rows = 32768;
};

/// What a reader has done since it was made.
struct TableStatistics {
  std::uint64_t rows = 0;      // asked for
  std::uint64_t distinct = 0;  // after removing repeats inside a fetch
  std::uint64_t cached = 0;    // of those, already held or on their way
  std::uint64_t ahead = 0;     // rows whose reads began before they were asked for
  std::uint64_t reads = 0;     // positioned reads
  std::uint64_t bytes = 0;     // read from files
};

/// Random rows of a table that is too large for memory: read by position, never as a whole. A fetch is
/// started when its rows are known and finished where they are needed; rows asked for twice are read once.
/// Rows that will probably be asked for can be announced: they are read behind whatever has to wait for rows.
/// Memory: the fetch, the row cache and one file descriptor a file, whatever the table's size.
///
/// Thread-safety: one thread at a time.
class TableReader {
 public:
  /// `shards` hold `rows_per_shard` consecutive rows each and have arrays of equal row sizes.
  /// Errors: kNotFound, kIo or kCorruptData, naming file, expected and got, for a file that is missing,
  /// cannot be read or is shorter than its rows; kOutOfMemory for kMemory.
  TableReader(std::vector<TableShard> shards, std::int64_t rows_per_shard, const TableOptions& options);
  ~TableReader();
  TableReader(TableReader&&) noexcept;
  TableReader& operator=(TableReader&&) noexcept;

  std::int64_t rows() const;
  std::size_t row_bytes() const;

  /// Begins to read rows that are not held yet, at most half of the row cache; they may never be asked for.
  /// An error shows when they are. Only kThreads, and only with a row cache; a fetch that was started and not
  /// finished is given up. Errors: kInvalidArgument for a row outside the table.
  void expect(std::span<const std::int64_t> rows);
  /// Starts a fetch; one that was started and not finished is given up.
  /// Errors: kInvalidArgument for a row outside the table.
  void start(std::span<const std::int64_t> rows);
  /// Waits for the fetch and copies its rows, in the order asked for, row_bytes() each.
  /// Errors: kIo naming the file if a read failed.
  void finish(std::span<std::byte> out);

  const TableStatistics& statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mererun
