#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
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

/// A few threads that work through one list of reads at a time, so that many are in flight at once.
///
/// Thread-safety: one caller at a time.
class ReadQueue {
 public:
  /// Errors: those of start_threads.
  explicit ReadQueue(int threads);
  ~ReadQueue();
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;

  /// Starts a list; the one before is finished or abandoned. `reads` must outlive it.
  void start(std::span<const PositionedRead> reads);
  /// The caller helps and waits. Errors: the first failed read's.
  void finish();
  /// Waits until no thread touches the list any more; reads not begun are left out, errors forgotten.
  void abandon();

 private:
  void work();
  void stop();
  void work_through(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::span<const PositionedRead> reads_;
  std::size_t next_ = 0;  // first read that nobody took
  int busy_ = 0;          // threads inside a read
  std::exception_ptr error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mererun
