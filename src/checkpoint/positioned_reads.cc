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
    for (List& list : lists_) list.next = list.reads.size();
  }
  wake_.notify_all();
}

ReadQueue::Lists::iterator ReadQueue::find(Ticket ticket) {
  const auto it =
      std::find_if(lists_.begin(), lists_.end(), [&](const List& l) { return l.ticket == ticket; });
  MERERUN_CHECK(it != lists_.end(), "a list that was started and not finished");
  return it;
}

/// The first list with reads that nobody took.
ReadQueue::List* ReadQueue::next_list() {
  for (List& list : lists_)
    if (list.has_left()) return &list;
  return nullptr;
}

void ReadQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    List* list = nullptr;
    wake_.wait(lock, [&] { return stop_ || (list = next_list()) != nullptr; });
    if (stop_) return;
    work_through(*list, lock);
  }
}

/// Takes some reads of a list that has some left; the lock is held on entry and on return.
void ReadQueue::work_through(List& list, std::unique_lock<std::mutex>& lock) {
  const std::size_t first = list.next;
  // Small lists are spread over all threads: what counts is how many reads are in flight.
  const std::size_t share = std::max<std::size_t>(1, (list.reads.size() - first) / (threads_.size() + 1));
  list.next = first + std::min({kTaken, share, list.reads.size() - first});
  const std::span<const PositionedRead> taken = list.reads.subspan(first, list.next - first);
  ++list.busy;
  lock.unlock();
  std::exception_ptr error;
  try {
    for (const PositionedRead& read : taken) read.file->read(read.to, read.offset);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --list.busy;
  if (error && !list.error) list.error = error;
  if (error) list.next = list.reads.size();
  if (list.is_done()) idle_.notify_all();
}

ReadQueue::Ticket ReadQueue::start(std::span<const PositionedRead> reads, Order order) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = ++last_ticket_;
    lists_.insert(order == Order::kUrgent ? lists_.begin() : lists_.end(),
                  List{ticket, reads, 0, 0, nullptr});
  }
  if (!reads.empty()) wake_.notify_all();
  return ticket;
}

bool ReadQueue::is_done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return find(ticket)->is_done();
}

void ReadQueue::finish(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto list = find(ticket);
  while (list->has_left()) work_through(*list, lock);
  idle_.wait(lock, [&] { return list->is_done(); });
  const std::exception_ptr error = list->error;
  lists_.erase(list);
  if (error) std::rethrow_exception(error);
}

void ReadQueue::abandon(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto list = find(ticket);
  list->next = list->reads.size();
  idle_.wait(lock, [&] { return list->is_done(); });
  lists_.erase(list);
}

}  // namespace mererun
