#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace mererun {

/// A regular file mapped read-only for its whole life; pages come from the page cache when they are touched.
/// An empty file has size 0 and no data. Symbolic links are followed.
///
/// A file that another process shortens while it is mapped makes later reads fault: checkpoints are not
/// edited in place.
///
/// Thread-safety: thread-compatible; the bytes and the advice functions may be used from several threads.
class MappedFile {
 public:
  /// Errors: kNotFound if there is no such file (or the link is broken); kIo if it is not a regular file or
  /// the operating system refuses to open or map it.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

  /// Tells the kernel that the file is about to be read front to back (larger read-ahead).
  void advise_sequential() const;
  /// Gives the memory of the whole pages inside a range back; a later read maps them in again. Bytes outside
  /// the range keep their pages. For weights that were repacked elsewhere.
  void drop_pages(const std::byte* first, std::uint64_t bytes) const;

 private:
  void advise(const std::byte* first, std::uint64_t bytes, int advice) const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace mererun
