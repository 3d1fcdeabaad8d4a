#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void fail_system(const std::filesystem::path& path, const char* action, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  fail_expected(missing ? ErrorCode::kNotFound : ErrorCode::kIo, path.string(), action, std::strerror(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO for reading would wait for a writer.
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail_system(path, "a readable file", errno);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) fail_system(path, "a readable file", errno);
  if (!S_ISREG(status.st_mode)) {
    fail_expected(ErrorCode::kIo, path.string(), "a regular file",
                  S_ISDIR(status.st_mode) ? "a folder" : "a special file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (mapped == MAP_FAILED) fail_system(path, "a file that can be mapped", errno);
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise_sequential() const { advise(data_, size_, MADV_SEQUENTIAL); }

void MappedFile::drop_pages(const std::byte* first, std::uint64_t bytes) const {
  // Rounded inward: a page shared with a neighbouring tensor stays.
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t offset = static_cast<std::uint64_t>(first - data_);
  const std::uint64_t start = (offset + page - 1) / page * page;
  const bool reaches_end = offset + bytes == size_;
  const std::uint64_t end = reaches_end ? size_ : (offset + bytes) / page * page;
  if (start < end) advise(data_ + start, end - start, MADV_DONTNEED);
}

void MappedFile::advise(const std::byte* first, std::uint64_t bytes, int advice) const {
  if (bytes == 0) return;
  MERERUN_CHECK(first >= data_ && static_cast<std::uint64_t>(first - data_) + bytes <= size_,
                "advice inside the mapping");
  // Advice only: a kernel that does not know it changes nothing but speed.
  (void)::madvise(const_cast<std::byte*>(first), bytes, advice);
}

}  // namespace mererun
