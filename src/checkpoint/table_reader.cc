#include "checkpoint/table_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/positioned_reads.h"
#include "checkpoint/row_cache.h"

namespace mererun {

std::string_view name_of(TableMethod method) {
  switch (method) {
    case TableMethod::kThreads: return "threads";
    case TableMethod::kMapped: return "mapped";
    case TableMethod::kMemory: return "memory";
  }
  return "unknown";
}

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

  // The fetch that was started.
  bool started = false;
  std::vector<std::size_t> slot_of;    // of each row asked for, in `fetched`
  std::vector<std::int64_t> distinct;  // the row of each slot
  std::vector<std::byte> fetched;      // one row a slot
  std::vector<std::size_t> late;       // slots whose rows the cache is still waiting for
  std::vector<PositionedRead> reads;   // what the queue works on
  ReadQueue::Ticket ticket = 0;
  std::unordered_map<std::int64_t, std::size_t> slots;

  /// Rows under way to the cache before anyone asked for them.
  struct Ahead {
    std::uint64_t number = 0;
    ReadQueue::Ticket ticket = 0;
    std::vector<PositionedRead> reads;
    std::vector<std::size_t> slots;  // of the cache
  };
  std::list<Ahead> ahead, done;  // `done`: their memory serves later ones
  std::uint64_t last_ahead = 0;
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

  std::int64_t rows() const { return rows_per_shard * static_cast<std::int64_t>(shards.size()); }

  void load_all() {
    memory.resize(row_bytes * static_cast<std::size_t>(rows()));
    for (std::int64_t row = 0; row < rows(); ++row) {
      for_each_part(row, memory.data() + row_bytes * static_cast<std::size_t>(row),
                    [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes, std::byte* to) {
                      files[file].read({to, bytes}, offset);
                    });
    }
  }

  void require_row(std::int64_t row) const {
    if (row >= 0 && row < rows()) return;
    fail_expected(ErrorCode::kInvalidArgument, "row of an n-gram table", fmt::format("0..{}", rows() - 1),
                  fmt::format("{}", row));
  }

  void add_reads(std::int64_t row, std::byte* to, std::vector<PositionedRead>& list) {
    for_each_part(row, to, [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes, std::byte* at) {
      ++statistics.reads;
      statistics.bytes += bytes;
      list.push_back({&files[file], offset, {at, bytes}});
    });
  }

  /// Fills a slot now, or adds its reads.
  void fetch(std::size_t slot) {
    const std::int64_t row = distinct[slot];
    std::byte* to = fetched.data() + slot * row_bytes;
    if (const auto held = cache.find(row)) {
      ++statistics.cached;
      if (cache.pending(*held) != 0) {
        late.push_back(slot);
      } else {
        std::memcpy(to, cache.data(*held), row_bytes);
      }
    } else if (options.method == TableMethod::kMemory) {
      std::memcpy(to, memory.data() + row_bytes * static_cast<std::size_t>(row), row_bytes);
    } else if (options.method == TableMethod::kThreads) {
      add_reads(row, to, reads);
    } else {
      for_each_part(row, to, [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes, std::byte* at) {
        ++statistics.reads;
        statistics.bytes += bytes;
        std::memcpy(at, maps[file].data() + offset, bytes);
      });
    }
  }

  void give_up() {
    if (started && queue) queue->abandon(ticket);
    started = false;
  }

  /// Waits for rows that were fetched ahead; what could not be read leaves the cache.
  std::list<Ahead>::iterator settle(std::list<Ahead>::iterator list) {
    bool succeeded = true;
    try {
      queue->finish(list->ticket);
    } catch (const Error&) {
      succeeded = false;  // whoever needs the row reads it again and sees why
    }
    for (const std::size_t slot : list->slots) cache.settle(slot, succeeded);
    const auto next = std::next(list);
    done.splice(done.end(), ahead, list);
    return next;
  }
  void settle_finished() {
    for (auto list = ahead.begin(); list != ahead.end();)
      list = queue->is_done(list->ticket) ? settle(list) : std::next(list);
  }

  void fetch_late(std::size_t slot) {
    const std::int64_t row = distinct[slot];
    std::byte* to = fetched.data() + slot * row_bytes;
    auto held = cache.find(row);
    if (held && cache.pending(*held) != 0) {
      const std::uint64_t number = cache.pending(*held);
      settle(std::find_if(ahead.begin(), ahead.end(), [&](const Ahead& a) { return a.number == number; }));
      held = cache.find(row);
    }
    if (held) {
      std::memcpy(to, cache.data(*held), row_bytes);
      return;
    }
    std::vector<PositionedRead> again;
    add_reads(row, to, again);
    for (const PositionedRead& read : again) read.file->read(read.to, read.offset);
  }
};

TableReader::TableReader(std::vector<TableShard> shards, std::int64_t rows_per_shard,
                         const TableOptions& options)
    : state_(std::make_unique<State>(std::move(shards), rows_per_shard, options)) {}

TableReader::~TableReader() = default;
TableReader::TableReader(TableReader&&) noexcept = default;
TableReader& TableReader::operator=(TableReader&&) noexcept = default;

std::int64_t TableReader::rows() const { return state_->rows(); }
std::size_t TableReader::row_bytes() const { return state_->row_bytes; }
const TableStatistics& TableReader::statistics() const { return state_->statistics; }

void TableReader::expect(std::span<const std::int64_t> rows) {
  State& s = *state_;
  for (const std::int64_t row : rows) s.require_row(row);
  if (!s.queue || s.cache.size() == 0) return;
  s.give_up();
  s.settle_finished();
  if (s.done.empty()) s.done.emplace_back();
  State::Ahead& list = s.done.front();
  list.number = ++s.last_ahead;
  list.reads.clear();
  list.slots.clear();
  const auto most = static_cast<std::size_t>(s.cache.size()) / 2;
  for (const std::int64_t row : rows) {
    if (s.cache.find(row)) continue;
    if (list.slots.size() == most) break;
    const auto slot = s.cache.claim(row, list.number);
    if (!slot) break;
    list.slots.push_back(*slot);
    s.add_reads(row, s.cache.data(*slot), list.reads);
  }
  if (list.slots.empty()) return;
  s.statistics.ahead += list.slots.size();
  s.ahead.splice(s.ahead.end(), s.done, s.done.begin());
  list.ticket = s.queue->start(list.reads, ReadQueue::Order::kInTurn);
}

void TableReader::start(std::span<const std::int64_t> rows) {
  State& s = *state_;
  for (const std::int64_t row : rows) s.require_row(row);
  s.give_up();
  if (s.queue) s.settle_finished();
  s.slot_of.clear();
  s.distinct.clear();
  s.slots.clear();
  s.late.clear();
  s.reads.clear();
  for (const std::int64_t row : rows) {
    const auto [it, fresh] = s.slots.try_emplace(row, s.distinct.size());
    if (fresh) s.distinct.push_back(row);
    s.slot_of.push_back(it->second);
  }
  s.fetched.resize(s.distinct.size() * s.row_bytes);
  for (std::size_t i = 0; i < s.distinct.size(); ++i) s.fetch(i);
  s.statistics.rows += rows.size();
  s.statistics.distinct += s.distinct.size();
  if (s.queue) s.ticket = s.queue->start(s.reads);
  s.started = true;
}

void TableReader::finish(std::span<std::byte> out) {
  State& s = *state_;
  MERERUN_CHECK(s.started && out.size() == s.slot_of.size() * s.row_bytes, "a started fetch and its size");
  s.started = false;
  if (s.queue) s.queue->finish(s.ticket);
  for (const std::size_t slot : s.late) s.fetch_late(slot);
  for (std::size_t i = 0; i < s.slot_of.size(); ++i)
    std::memcpy(out.data() + i * s.row_bytes, s.fetched.data() + s.slot_of[i] * s.row_bytes, s.row_bytes);
  for (std::size_t i = 0; i < s.distinct.size(); ++i) {
    if (s.cache.find(s.distinct[i])) continue;
    if (const auto slot = s.cache.claim(s.distinct[i], 0))
      std::memcpy(s.cache.data(*slot), s.fetched.data() + i * s.row_bytes, s.row_bytes);
  }
}

}  // namespace mererun
