#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace mererun {

/// One part of a sealed file.
struct FileSection {
  std::uint32_t id = 0;
  std::span<const std::byte> bytes;
};

/// A file of numbered sections in which no byte is unchecked:
///
///   magic "MRSEAL01" | u32 sections | u32 0 | u64 payload bytes | u64 checksum of all of this and the table
///   table: per section u32 id | u32 0 | u64 bytes
///   payload: the sections one after the other
///   u64 checksum of every MiB of the payload
///
/// Checksums are XXH3 (64 bits, libxxhash); numbers are little-endian. Damage of any kind is found when the
/// file is opened; it is no protection against somebody who writes checksums too.
///
/// Thread-safety: immutable once read.
class SealedFile {
 public:
  /// Reads and verifies. No value: what is there is damaged, lost by its medium, of another format, or no
  /// file. Errors: kNotFound; kIo when the system refuses to read, which says nothing about the file.
  static std::optional<SealedFile> read(const std::filesystem::path& path);

  /// A section's bytes; empty when there is none of that id.
  std::span<const std::byte> section(std::uint32_t id) const;

  /// Writes under a temporary name beside `path` (mode 0600), syncs and renames: afterwards `path` is whole
  /// or absent, whenever the process ends. Returns the size. Errors: kIo; nothing stays behind.
  static std::uint64_t write(const std::filesystem::path& path, std::span<const FileSection> sections);
  /// Size of such a file. The sections' bytes only count.
  static std::uint64_t size_of(std::span<const FileSection> sections);

 private:
  struct Place {
    std::uint32_t id;
    std::size_t offset, bytes;
  };
  std::vector<std::byte> data_;
  std::vector<Place> places_;
};

/// Makes renames in a folder durable. Errors are ignored: the files themselves are synced.
void sync_folder(const std::filesystem::path& folder);

/// Temporary names start with it.
inline constexpr const char* kTemporaryPrefix = ".tmp-";

}  // namespace mererun
