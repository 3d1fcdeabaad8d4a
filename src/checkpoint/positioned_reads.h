#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace mererun {

/// A file opened for reads at given offsets.
///
/// Thread-safety: reads may run in several threads.
class PositionedFile {
 public:
  /// Errors: kNotFound, kIo.
  explicit PositionedFile(const std::filesystem::path& path);
  ~PositionedFile();
  PositionedFile(PositionedFile&& other) noexcept;
  PositionedFile& operator=(PositionedFile&&) = delete;
  PositionedFile(const PositionedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Errors: kCorruptData if the file is shorter than `end` bytes; kIo if its `last` bytes before `end`
  /// cannot be read.
  void require(std::uint64_t end, std::uint64_t last) const;
  /// Fills `to` from `offset` on. Errors: kIo, also for an end of file before that.
  void read(std::span<std::byte> to, std::uint64_t offset) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

struct PositionedRead {
  const PositionedFile* file = nullptr;
  std::uint64_t offset = 0;
  std::span<std::byte> to;
};

/// A few threads that work through lists of reads, so that many reads are in flight at once. Lists are begun
/// in the order they were started, but for an urgent one, which goes before all others.
///
/// Thread-safety: one caller at a time.
class ReadQueue {
 public:
  /// Names a started list; never 0.
  using Ticket = std::uint64_t;
  enum class Order { kInTurn, kUrgent };

  /// Errors: those of start_threads.
  explicit ReadQueue(int threads);
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  /// Starts a list. `reads` must stay until the list is finished or abandoned.
  Ticket start(std::span<const PositionedRead> reads, Order order = Order::kUrgent);
  /// Whether no read of a started list is left or under way.
  bool is_done(Ticket ticket);
  /// The caller helps with the list and waits for it. Errors: the first failed read's.
  void finish(Ticket ticket);
  /// Waits until no thread touches the list any more; reads not begun are left out, errors forgotten.
  void abandon(Ticket ticket);

 private:
  struct List {
    Ticket ticket = 0;
    std::span<const PositionedRead> reads;
    std::size_t next = 0;  // first read that nobody took
    int busy = 0;          // threads inside one of its reads
    std::exception_ptr error;

    bool has_left() const { return next < reads.size(); }
    bool is_done() const { return !has_left() && busy == 0; }
  };
  using Lists = std::list<List>;

  void work();
  void stop();
  void work_through(List& list, std::unique_lock<std::mutex>& lock);
  Lists::iterator find(Ticket ticket);
  List* next_list();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Lists lists_;
  Ticket last_ticket_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mererun
