#include "checkpoint/table_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/positioned_reads.h"

namespace mererun {

std::string_view name_of(TableMethod method) {
  switch (method) {
    case TableMethod::kThreads: return "threads";
    case TableMethod::kMapped: return "mapped";
    case TableMethod::kMemory: return "memory";
  }
  return "unknown";
}

namespace {

/// The last rows that were read, in a ring: the oldest goes first.
class RowCache {
 public:
  RowCache(int rows, std::size_t row_bytes)
      : row_bytes_(row_bytes),
        rows_(static_cast<std::size_t>(rows), -1),
        bytes_(static_cast<std::size_t>(rows) * row_bytes) {}

  const std::byte* find(std::int64_t row) const {
    const auto it = slots_.find(row);
    return it == slots_.end() ? nullptr : bytes_.data() + it->second * row_bytes_;
  }
  void insert(std::int64_t row, const std::byte* data) {
    if (rows_.empty() || slots_.contains(row)) return;
    if (rows_[next_] >= 0) slots_.erase(rows_[next_]);
    rows_[next_] = row;
    slots_[row] = next_;
    std::memcpy(bytes_.data() + next_ * row_bytes_, data, row_bytes_);
    next_ = (next_ + 1) % rows_.size();
  }

 private:
  std::size_t row_bytes_;
  std::vector<std::int64_t> rows_;
  std::vector<std::byte> bytes_;
  std::unordered_map<std::int64_t, std::size_t> slots_;
  std::size_t next_ = 0;
};

}  // namespace

struct TableReader::State {
  std::vector<TableShard> shards;
  std::int64_t rows_per_shard;
  TableOptions options;
  std::size_t row_bytes = 0;
  std::map<std::filesystem::path, std::size_t> file_index;
  std::vector<PositionedFile> files;
  std::vector<std::vector<std::size_t>> array_files;  // [shard][array]: index into files
  std::vector<MappedFile> maps;                       // kMapped: as files
  std::vector<std::byte> memory;                      // kMemory: every row
  RowCache cache;
  TableStatistics statistics;

  // The batch.
  bool started = false;
  std::vector<std::size_t> slot_of;    // of each row asked for, in `fetched`
  std::vector<std::int64_t> distinct;  // the row of each slot
  std::vector<std::byte> fetched;      // one row a slot
  std::vector<PositionedRead> reads;   // what the queue works on
  std::unordered_map<std::int64_t, std::size_t> slots;
  std::unique_ptr<ReadQueue> queue;  // kThreads; last: its threads stop before what they read into goes

  State(std::vector<TableShard> table, std::int64_t per_shard, const TableOptions& wanted)
      : shards(std::move(table)),
        rows_per_shard(per_shard),
        options(wanted),
        row_bytes(bytes_of_row(shards)),
        cache(wanted.method == TableMethod::kThreads ? wanted.cache_rows : 0, row_bytes) {
    open_files();
    if (options.method == TableMethod::kThreads) queue = std::make_unique<ReadQueue>(options.threads);
    if (options.method == TableMethod::kMapped)
      for (const PositionedFile& file : files) maps.emplace_back(file.path());
    if (options.method == TableMethod::kMemory) load_all();
  }

  static std::size_t bytes_of_row(const std::vector<TableShard>& shards) {
    MERERUN_CHECK(!shards.empty(), "a table has shards");
    std::size_t bytes = 0;
    for (const TableArray& array : shards.front().arrays) bytes += array.row_bytes;
    return bytes;
  }

  void open_files() {
    for (const TableShard& shard : shards) {
      std::vector<std::size_t>& indices = array_files.emplace_back();
      for (const TableArray& array : shard.arrays) {
        const auto [it, fresh] = file_index.try_emplace(array.path, files.size());
        if (fresh) files.emplace_back(array.path);
        const std::uint64_t end = array.offset + array.row_bytes * static_cast<std::uint64_t>(rows_per_shard);
        files[it->second].require(end, array.row_bytes);
        indices.push_back(it->second);
      }
    }
  }

  /// Calls visit(file, offset, bytes, to) for each array of a row.
  template <typename F>
  void for_each_part(std::int64_t row, std::byte* to, F&& visit) const {
    const auto shard = static_cast<std::size_t>(row / rows_per_shard);
    const auto local = static_cast<std::uint64_t>(row % rows_per_shard);
    for (std::size_t a = 0; a < shards[shard].arrays.size(); ++a) {
      const TableArray& array = shards[shard].arrays[a];
      visit(array_files[shard][a], array.offset + local * array.row_bytes, array.row_bytes, to);
      to += array.row_bytes;
    }
  }

  void load_all() {
    const std::int64_t rows = rows_per_shard * static_cast<std::int64_t>(shards.size());
    memory.resize(row_bytes * static_cast<std::size_t>(rows));
    for (std::int64_t row = 0; row < rows; ++row) {
      for_each_part(row, memory.data() + row_bytes * static_cast<std::size_t>(row),
                    [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes, std::byte* to) {
                      files[file].read({to, bytes}, offset);
                    });
    }
  }

  /// Fills a slot now, or adds its reads.
  void fetch(std::int64_t row, std::byte* to) {
    if (const std::byte* held = cache.find(row)) {
      std::memcpy(to, held, row_bytes);
      ++statistics.cached;
    } else if (options.method == TableMethod::kMemory) {
      std::memcpy(to, memory.data() + row_bytes * static_cast<std::size_t>(row), row_bytes);
    } else {
      for_each_part(row, to, [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes, std::byte* at) {
        ++statistics.reads;
        statistics.bytes += bytes;
        if (options.method == TableMethod::kMapped) {
          std::memcpy(at, maps[file].data() + offset, bytes);
        } else {
          reads.push_back({&files[file], offset, {at, bytes}});
        }
      });
    }
  }
};

TableReader::TableReader(std::vector<TableShard> shards, std::int64_t rows_per_shard,
                         const TableOptions& options)
    : state_(std::make_unique<State>(std::move(shards), rows_per_shard, options)) {}

TableReader::~TableReader() = default;

std::int64_t TableReader::rows() const {
  return state_->rows_per_shard * static_cast<std::int64_t>(state_->shards.size());
}
std::size_t TableReader::row_bytes() const { return state_->row_bytes; }
const TableStatistics& TableReader::statistics() const { return state_->statistics; }

void TableReader::start(std::span<const std::int64_t> rows) {
  State& s = *state_;
  if (s.started && s.queue) s.queue->abandon();
  s.started = false;
  s.slot_of.clear();
  s.distinct.clear();
  s.slots.clear();
  s.reads.clear();
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= this->rows()) {
      fail_expected(ErrorCode::kInvalidArgument, "row of an n-gram table",
                    fmt::format("0..{}", this->rows() - 1), fmt::format("{}", row));
    }
    const auto [it, fresh] = s.slots.try_emplace(row, s.distinct.size());
    if (fresh) s.distinct.push_back(row);
    s.slot_of.push_back(it->second);
  }
  s.fetched.resize(s.distinct.size() * s.row_bytes);
  for (std::size_t i = 0; i < s.distinct.size(); ++i)
    s.fetch(s.distinct[i], s.fetched.data() + i * s.row_bytes);
  s.statistics.rows += rows.size();
  s.statistics.distinct += s.distinct.size();
  if (s.queue) s.queue->start(s.reads);
  s.started = true;
}

void TableReader::finish(std::span<std::byte> out) {
  State& s = *state_;
  MERERUN_CHECK(s.started && out.size() == s.slot_of.size() * s.row_bytes, "a started batch and its size");
  const Stopwatch watch;
  s.started = false;
  if (s.queue) s.queue->finish();
  s.statistics.wait_seconds += watch.seconds();
  for (std::size_t i = 0; i < s.slot_of.size(); ++i)
    std::memcpy(out.data() + i * s.row_bytes, s.fetched.data() + s.slot_of[i] * s.row_bytes, s.row_bytes);
  for (std::size_t i = 0; i < s.distinct.size(); ++i)
    s.cache.insert(s.distinct[i], s.fetched.data() + i * s.row_bytes);
}

}  // namespace mererun
