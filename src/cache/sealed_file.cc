#include "cache/sealed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "base/error.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'M', 'R', 'S', 'E', 'A', 'L', '0', '1'};
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kEntryBytes = 16;
constexpr std::size_t kMaxSections = 64;
constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr std::uint64_t kMaxPayload = std::uint64_t{1} << 48;  // no sum of lengths overflows

static_assert(std::endian::native == std::endian::little, "files are written as memory holds them");

void put(std::byte* to, std::uint64_t value, std::size_t bytes) { std::memcpy(to, &value, bytes); }
std::uint64_t get(const std::byte* from, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  return value;
}

std::size_t blocks(std::uint64_t payload) {
  return static_cast<std::size_t>((payload + kBlock - 1) / kBlock);
}

/// Header and table with their checksum in place.
std::vector<std::byte> make_head(std::span<const FileSection> sections) {
  std::vector<std::byte> head(kHeaderBytes + kEntryBytes * sections.size());
  std::uint64_t payload = 0;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    std::byte* entry = head.data() + kHeaderBytes + kEntryBytes * i;
    put(entry, sections[i].id, 4);
    put(entry + 8, sections[i].bytes.size(), 8);
    payload += sections[i].bytes.size();
  }
  std::memcpy(head.data(), kMagic, sizeof(kMagic));
  put(head.data() + 8, sections.size(), 4);
  put(head.data() + 16, payload, 8);
  put(head.data() + 24, XXH3_64bits(head.data(), head.size()), 8);  // over zeros in its own place
  return head;
}

[[noreturn]] void fail_io(const fs::path& path, const char* action, int code) {
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              fmt::format("{}: expected to {} it, got {}", path.string(), action, std::strerror(code)));
}

/// An open descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, const fs::path& path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_io(path, "write", n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

/// Writes the payload and returns the checksums of its blocks.
std::vector<std::uint64_t> write_payload(int fd, const fs::path& path,
                                         std::span<const FileSection> sections) {
  std::vector<std::uint64_t> sums;
  XXH3_state_t* state = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> guard(state, XXH3_freeState);
  XXH3_64bits_reset(state);
  std::size_t in_block = 0;
  for (const FileSection& section : sections) {
    std::span<const std::byte> rest = section.bytes;
    while (!rest.empty()) {
      const auto part = rest.first(std::min(rest.size(), kBlock - in_block));
      XXH3_64bits_update(state, part.data(), part.size());
      write_all(fd, path, part);
      in_block += part.size();
      rest = rest.subspan(part.size());
      if (in_block < kBlock) continue;
      sums.push_back(XXH3_64bits_digest(state));
      XXH3_64bits_reset(state);
      in_block = 0;
    }
  }
  if (in_block > 0) sums.push_back(XXH3_64bits_digest(state));
  return sums;
}

/// What the header says of a file. Nothing is verified yet.
struct Claim {
  std::size_t head = 0;  // bytes of header and table
  std::uint64_t sections = 0, payload = 0;

  /// No value: no header of such a file.
  static std::optional<Claim> of(const std::byte* header) {
    if (std::memcmp(header, kMagic, sizeof(kMagic)) != 0) return std::nullopt;
    Claim claim{.head = 0, .sections = get(header + 8, 4), .payload = get(header + 16, 8)};
    claim.head = kHeaderBytes + kEntryBytes * static_cast<std::size_t>(claim.sections);
    if (claim.sections > kMaxSections || claim.payload > kMaxPayload) return std::nullopt;
    return claim;
  }
  std::uint64_t file_bytes() const { return head + payload + sizeof(std::uint64_t) * blocks(payload); }
};

/// False: the file ends before, or the medium has lost what was there.
bool fill(int fd, const fs::path& path, std::span<std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::read(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EIO) fail_io(path, "read", errno);
    if (n <= 0) return false;
    data = data.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

/// The bytes of a file that is as long as its header says: a damaged length costs no memory.
std::optional<std::vector<std::byte>> read_all(const fs::path& path) {
  // Without O_NONBLOCK a pipe in place of the file would be waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_io(path, "open", errno);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) fail_io(path, "read", errno);
  std::vector<std::byte> data(kHeaderBytes);
  if (!S_ISREG(info.st_mode) || !fill(file.get(), path, data)) return std::nullopt;
  const std::optional<Claim> claim = Claim::of(data.data());
  if (!claim || static_cast<std::uint64_t>(info.st_size) != claim->file_bytes()) return std::nullopt;
  data.resize(static_cast<std::size_t>(info.st_size));
  if (!fill(file.get(), path, std::span(data).subspan(kHeaderBytes))) return std::nullopt;
  return data;
}

}  // namespace

std::uint64_t SealedFile::size_of(std::span<const FileSection> sections) {
  std::uint64_t payload = 0;
  for (const FileSection& section : sections) payload += section.bytes.size();
  return kHeaderBytes + kEntryBytes * sections.size() + payload + sizeof(std::uint64_t) * blocks(payload);
}

std::optional<SealedFile> SealedFile::read(const fs::path& path) {
  SealedFile file;
  auto whole = read_all(path);
  if (!whole) return std::nullopt;
  file.data_ = std::move(*whole);
  std::vector<std::byte>& data = file.data_;
  const auto [head, sections, payload] = *Claim::of(data.data());
  const std::uint64_t head_sum = get(data.data() + 24, 8);
  put(data.data() + 24, 0, 8);
  if (XXH3_64bits(data.data(), head) != head_sum) return std::nullopt;
  std::size_t offset = head;
  for (std::size_t i = 0; i < sections; ++i) {
    const std::byte* entry = data.data() + kHeaderBytes + kEntryBytes * i;
    const std::uint64_t bytes = get(entry + 8, 8);
    if (bytes > head + payload - offset) return std::nullopt;
    file.places_.push_back(
        {static_cast<std::uint32_t>(get(entry, 4)), offset, static_cast<std::size_t>(bytes)});
    offset += static_cast<std::size_t>(bytes);
  }
  if (offset != head + payload) return std::nullopt;
  for (std::size_t i = 0; i < blocks(payload); ++i) {
    const std::size_t begin = head + i * kBlock;
    const std::size_t bytes = std::min<std::size_t>(kBlock, head + payload - begin);
    if (XXH3_64bits(data.data() + begin, bytes) != get(data.data() + head + payload + 8 * i, 8))
      return std::nullopt;
  }
  return file;
}

std::span<const std::byte> SealedFile::section(std::uint32_t id) const {
  for (const Place& place : places_)
    if (place.id == id) return std::span(data_).subspan(place.offset, place.bytes);
  return {};
}

std::uint64_t SealedFile::write(const fs::path& path, std::span<const FileSection> sections) {
  // Random, so that what another process left behind, here or on another machine, is never in the way.
  static thread_local std::random_device random;
  const fs::path temporary =
      path.parent_path() / fmt::format("{}{}-{:08x}{:08x}", kTemporaryPrefix, ::getpid(), random(), random());
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) fail_io(temporary, "create", errno);
  try {
    write_all(file.get(), temporary, make_head(sections));
    const std::vector<std::uint64_t> sums = write_payload(file.get(), temporary, sections);
    write_all(file.get(), temporary, std::as_bytes(std::span(sums)));
    if (::fsync(file.get()) != 0) fail_io(temporary, "sync", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_io(path, "create", errno);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  return size_of(sections);
}

void sync_folder(const fs::path& folder) {
  const Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() >= 0) ::fsync(file.get());
}

}  // namespace mererun
