#include "checkpoint/positioned_reads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"

namespace mererun {

namespace {
constexpr std::size_t kTaken = 16;  // reads that a thread takes at once
}

PositionedFile::PositionedFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ >= 0) {
    struct stat info {};
    if (::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode)) {
      ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);  // no read-ahead; only advice
      return;
    }
    ::close(std::exchange(descriptor_, -1));
    fail_expected(ErrorCode::kIo, path.string(), "a regular file with a table", "something else");
  }
  const int error = errno;
  fail_expected(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path.string(),
                "a readable table file", std::strerror(error));
}

PositionedFile::~PositionedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

PositionedFile::PositionedFile(PositionedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

void PositionedFile::require(std::uint64_t end, std::uint64_t last) const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) {
    fail_expected(ErrorCode::kIo, path_.string(), "a readable table file", std::strerror(errno));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < end) {
    fail_expected(ErrorCode::kCorruptData, path_.string(), fmt::format("at least {} bytes of table", end),
                  fmt::format("{}", size));
  }
  std::vector<std::byte> tail(static_cast<std::size_t>(last));
  read(tail, end - last);
}

void PositionedFile::read(std::span<std::byte> to, std::uint64_t offset) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fail_expected(ErrorCode::kIo, path_.string(), fmt::format("{} bytes at offset {}", to.size(), offset),
                    n < 0 ? std::strerror(errno) : "the end of the file");
    }
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

ReadQueue::ReadQueue(int threads)
    : threads_(start_threads(
          std::max(threads, 1), [this](int) { work(); }, [this] { stop(); })) {}

ReadQueue::~ReadQueue() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void ReadQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    next_ = reads_.size();
  }
  wake_.notify_all();
}

void ReadQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || next_ < reads_.size(); });
    if (stop_) return;
    work_through(lock);
  }
}

/// Takes reads until none is left; the lock is held on entry and on return.
void ReadQueue::work_through(std::unique_lock<std::mutex>& lock) {
  while (next_ < reads_.size()) {
    const std::size_t first = next_;
    // Small lists are spread over all threads: what counts is how many reads are in flight.
    const std::size_t share = std::max<std::size_t>(1, (reads_.size() - first) / (threads_.size() + 1));
    next_ = first + std::min({kTaken, share, reads_.size() - first});
    const std::span<const PositionedRead> taken = reads_.subspan(first, next_ - first);
    ++busy_;
    lock.unlock();
    std::exception_ptr error;
    try {
      for (const PositionedRead& read : taken) read.file->read(read.to, read.offset);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --busy_;
    if (error && !error_) error_ = error;
    if (error) next_ = reads_.size();
  }
  if (busy_ == 0) idle_.notify_all();
}

void ReadQueue::start(std::span<const PositionedRead> reads) {
  {
    const std::lock_guard lock(mutex_);
    MERERUN_CHECK(busy_ == 0 && next_ >= reads_.size(), "one list at a time");
    reads_ = reads;
    next_ = 0;
    error_ = nullptr;
  }
  if (!reads.empty()) wake_.notify_all();
}

void ReadQueue::finish() {
  std::unique_lock lock(mutex_);
  work_through(lock);
  idle_.wait(lock, [&] { return busy_ == 0; });
  reads_ = {};
  next_ = 0;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ReadQueue::abandon() {
  std::unique_lock lock(mutex_);
  next_ = reads_.size();
  idle_.wait(lock, [&] { return busy_ == 0; });
  reads_ = {};
  next_ = 0;
  error_ = nullptr;
}

}  // namespace mererun
