#include "model/synthetic_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "model/synthetic_weights.h"

namespace mererun {

namespace {

constexpr int kTableBits = 4;
constexpr int kTableGroup = 32;
constexpr std::size_t kPart = std::size_t{1} << 20;  // bytes written at once

/// A file without a name, so that it goes with the process, whatever ends it.
class TemporaryFile {
 public:
  TemporaryFile() : name_(folder() / "mererun-table-XXXXXX") {
    std::string name = name_.string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail();
    ::unlink(name.c_str());
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Opens the file again, as long as this object lives.
  std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }
  void write(const std::byte* data, std::size_t bytes) {
    while (bytes > 0) {
      const ssize_t n = ::write(descriptor_, data, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail();
      data += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }

 private:
  static std::filesystem::path folder() {
    std::error_code error;
    std::filesystem::path found = std::filesystem::temp_directory_path(error);
    if (error) fail_expected(ErrorCode::kIo, "TMPDIR", "a folder for temporary files", error.message());
    return found;
  }
  [[noreturn]] void fail() const {
    fail_expected(ErrorCode::kIo, name_.string(), "room for a table", std::strerror(errno));
  }

  std::filesystem::path name_;  // for messages
  int descriptor_ = -1;
};

/// Writes `bytes` bytes, eight at a time from `value(index)`. Errors: kIo; kCancelled.
template <typename F>
void write_words(TemporaryFile& file, std::uint64_t bytes, const std::atomic<bool>* cancelled, F&& value) {
  std::vector<std::uint64_t> part(kPart / sizeof(std::uint64_t));
  for (std::uint64_t done = 0; done < bytes; done += kPart) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed))
      throw Error(ErrorCode::kCancelled, "synthetic table: interrupted");
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = value(done / sizeof(std::uint64_t) + i);
    file.write(reinterpret_cast<const std::byte*>(part.data()),
               static_cast<std::size_t>(std::min<std::uint64_t>(kPart, bytes - done)));
  }
}

LinearSource row_format(const FlashConfig& config) {
  LinearSource format;
  format.name = "ngram_embedding";
  format.format = WeightFormat::kAffine;
  format.in = config.ngram_width();
  format.out = 1;
  format.bits = kTableBits;
  format.group = kTableGroup;
  return format;
}

}  // namespace

int ngram_base_for_bytes(const FlashConfig& config, std::uint64_t bytes) {
  const LinearSource format = row_format(config);
  const auto row = static_cast<std::uint64_t>(format.weight_row_bytes() + 2 * format.scale_row_bytes());
  const std::uint64_t base = bytes / row / static_cast<std::uint64_t>(config.ngram_heads());
  return static_cast<int>(std::clamp<std::uint64_t>(base, 16, 1u << 30));
}

SyntheticTable make_synthetic_table(const FlashConfig& config, int vocabulary, std::uint64_t seed,
                                    const std::atomic<bool>* cancelled) {
  SyntheticTable table;
  HostNgramTable& host = table.host;
  host.buffers = make_ngram_buffers(config, vocabulary);
  host.rows_per_shard = ngram_table_rows(config, host.buffers);
  host.width = config.ngram_width();
  host.format = row_format(config);
  MERERUN_CHECK(host.width % kTableGroup == 0, "synthetic table rows are whole groups");

  auto file = std::make_shared<TemporaryFile>();
  const auto rows = static_cast<std::uint64_t>(host.rows_per_shard);
  // Codes 0 to 15 around 7.5, scaled to a spread near 1, like the embeddings of a model.
  constexpr std::uint64_t kScale = 0x3e60;  // 0.21875 in BF16
  constexpr std::uint64_t kBias = 0xbfd2;   // -1.640625
  constexpr std::uint64_t kFour = 0x0001000100010001ULL;
  std::uint64_t offset = 0;
  TableShard shard;
  const auto add = [&](std::int64_t row_bytes, auto&& value) {
    shard.arrays.push_back({file->path(), offset, static_cast<std::uint64_t>(row_bytes)});
    write_words(*file, rows * static_cast<std::uint64_t>(row_bytes), cancelled, value);
    offset += rows * static_cast<std::uint64_t>(row_bytes);
  };
  add(host.format.weight_row_bytes(), [&](std::uint64_t i) { return synthetic_bits(seed + 3, i); });
  add(host.format.scale_row_bytes(), [&](std::uint64_t) { return kScale * kFour; });
  add(host.format.scale_row_bytes(), [&](std::uint64_t) { return kBias * kFour; });
  host.shards.push_back(std::move(shard));
  host.bytes = offset;
  table.file = std::move(file);
  return table;
}

}  // namespace mererun
