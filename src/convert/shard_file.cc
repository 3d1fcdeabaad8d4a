#include "convert/shard_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/safetensors.h"

namespace mererun {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkValues = std::int64_t{1} << 22;  // 16 MiB as f32

/// A file being written at given places. Several threads may write to disjoint places.
class OutputFile {
 public:
  explicit OutputFile(const fs::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail("a file that can be written");
  }
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::uint64_t at, const void* data, std::size_t bytes) {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(descriptor_, next, bytes, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail(fmt::format("room for {} bytes at {}", bytes, at));
      next += done;
      at += static_cast<std::uint64_t>(done);
      bytes -= static_cast<std::size_t>(done);
    }
  }

  /// Waits until everything is on disk.
  void close() {
    if (::fsync(descriptor_) != 0) fail("data that reaches the disk");
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) fail("data that reaches the disk");
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string got = std::strerror(errno);
    fail_expected(ErrorCode::kIo, path_.string(), expected, got);
  }

  fs::path path_;
  int descriptor_;
};

/// One array of the file: where it lies after the header.
struct Placed {
  std::string name;
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

std::vector<std::int64_t> with_last(std::vector<std::int64_t> shape, std::int64_t last) {
  shape.back() = last;
  return shape;
}

/// The arrays of a file in order: of a quantised tensor three, else one.
std::vector<Placed> place(const PlannedShard& shard) {
  std::vector<Placed> placed;
  std::uint64_t at = 0;
  const auto put = [&](std::string name, DType dtype, std::vector<std::int64_t> shape, std::uint64_t bytes) {
    placed.push_back({std::move(name), dtype, std::move(shape), at, bytes});
    at += bytes;
  };
  for (const PlannedTensor& t : shard.tensors) {
    if (!t.format) {
      put(t.name, t.dtype, t.shape, t.bytes());
      continue;
    }
    put(t.name + ".weight", DType::kU32, with_last(t.shape, t.source.in * t.format->bits / 32),
        t.code_bytes());
    const auto groups = with_last(t.shape, t.source.in / t.format->group);
    put(t.name + ".scales", DType::kBF16, groups, t.scale_bytes());
    put(t.name + ".biases", DType::kBF16, groups, t.scale_bytes());
  }
  return placed;
}

/// The file's first bytes: the header's length, then the header, padded with spaces to a multiple of 8.
std::string header_of(const std::vector<Placed>& placed) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "mlx"}};
  for (const Placed& p : placed) {
    header[p.name] = {
        {"dtype", name_of(p.dtype)}, {"shape", p.shape}, {"data_offsets", {p.begin, p.begin + p.bytes}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[static_cast<std::size_t>(i)] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

/// Quantised rows as they are stored.
struct StoredRows {
  std::vector<std::byte> codes;
  std::vector<std::uint16_t> scales, biases;  // BF16

  void resize(std::size_t rows, std::size_t code_row, std::size_t groups) {
    codes.resize(rows * code_row);
    scales.resize(rows * groups);
    biases.resize(rows * groups);
  }
};

void shift(const PlannedTensor& tensor, std::span<float> values) {
  if (!tensor.adds_one) return;
  for (float& value : values) value += 1.0f;
}

/// Values of an unquantised tensor in its stored type.
void store_plain(DType dtype, std::span<const float> values, std::byte* out) {
  for (const float value : values) {
    if (dtype == DType::kF32) {
      std::memcpy(out, &value, sizeof(value));
      out += sizeof(value);
      continue;
    }
    const std::uint16_t bits = f32_to_bf16(value);
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
}

void tell(const ChunkProgress& progress, std::uint64_t source_bytes) {
  if (progress && !progress(source_bytes))
    throw Error(ErrorCode::kCancelled, "convert: stopped by the caller");
}

/// The rows of a tensor in chunks of about kChunkValues, whose pages are given back.
class ChunkWalk {
 public:
  ChunkWalk(const PlannedTensor& tensor, ThreadPool& pool, const ChunkProgress& progress)
      : tensor_(tensor), pool_(pool), progress_(progress) {}

  /// `body(first, count, begin, end)`: rows begin..end of the chunk, on one worker.
  template <typename Before, typename Body, typename After>
  void run(const Before& before, const Body& body, const After& after) {
    const SourceRows& source = tensor_.source;
    const std::int64_t step = std::max<std::int64_t>(1, kChunkValues / std::max<std::int64_t>(1, source.in));
    for (std::int64_t first = 0; first < source.rows(); first += step) {
      const std::int64_t count = std::min(step, source.rows() - first);
      before(first, count);
      pool_.parallel_for(count, [&](std::int64_t begin, std::int64_t end, int) { body(first, begin, end); });
      after(first, count);
      source.drop(first, count);
      tell(progress_, static_cast<std::uint64_t>(count * source.in) * size_of(source.tensors.front()->dtype));
    }
  }

 private:
  const PlannedTensor& tensor_;
  ThreadPool& pool_;
  const ChunkProgress& progress_;
};

class ShardWriter {
 public:
  ShardWriter(const fs::path& path, ThreadPool& pool, const ChunkProgress& progress)
      : file_(path), pool_(pool), progress_(progress) {}

  void run(const PlannedShard& shard) {
    const std::vector<Placed> placed = place(shard);
    const std::string header = header_of(placed);
    file_.write(0, header.data(), header.size());
    std::size_t next = 0;
    for (const PlannedTensor& tensor : shard.tensors) {
      const std::uint64_t at = header.size() + placed[next].begin;
      if (tensor.is_copied) {
        file_.write(at, tensor.source.tensors.front()->data, tensor.bytes());
        tell(progress_, tensor.bytes());
        next += 1;
      } else if (!tensor.format) {
        write_plain(tensor, at);
        next += 1;
      } else {
        write_affine(tensor, at);
        next += 3;
      }
    }
    file_.close();
  }

 private:
  void write_plain(const PlannedTensor& tensor, std::uint64_t at) {
    const std::int64_t in = tensor.source.in;
    const std::size_t row_bytes = static_cast<std::size_t>(in) * size_of(tensor.dtype);
    std::vector<float> values;
    std::vector<std::byte> bytes;
    ChunkWalk(tensor, pool_, progress_)
        .run(
            [&](std::int64_t, std::int64_t count) {
              values.resize(static_cast<std::size_t>(count * in));
              bytes.resize(static_cast<std::size_t>(count) * row_bytes);
            },
            [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
              const auto part = std::span(values).subspan(static_cast<std::size_t>(begin * in),
                                                          static_cast<std::size_t>((end - begin) * in));
              tensor.source.read(first + begin, end - begin, part);
              shift(tensor, part);
              store_plain(tensor.dtype, part, bytes.data() + static_cast<std::size_t>(begin) * row_bytes);
            },
            [&](std::int64_t first, std::int64_t) {
              file_.write(at + static_cast<std::uint64_t>(first) * row_bytes, bytes.data(), bytes.size());
            });
  }

  void write_affine(const PlannedTensor& tensor, std::uint64_t at) {
    const std::int64_t in = tensor.source.in;
    const auto code_row = static_cast<std::size_t>(in * tensor.format->bits / 8);
    const auto groups = static_cast<std::size_t>(in / tensor.format->group);
    const std::uint64_t scales_at = at + tensor.code_bytes();
    const std::uint64_t biases_at = scales_at + tensor.scale_bytes();
    std::vector<float> values;
    StoredRows rows;
    ChunkWalk(tensor, pool_, progress_)
        .run(
            [&](std::int64_t, std::int64_t count) {
              values.resize(static_cast<std::size_t>(count * in));
              rows.resize(static_cast<std::size_t>(count), code_row, groups);
            },
            [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
              const auto part = std::span(values).subspan(static_cast<std::size_t>(begin * in),
                                                          static_cast<std::size_t>((end - begin) * in));
              tensor.source.read(first + begin, end - begin, part);
              const auto row = static_cast<std::size_t>(begin);
              quantise_affine_rows(part, *tensor.format,
                                   {rows.codes.data() + row * code_row, rows.scales.data() + row * groups,
                                    rows.biases.data() + row * groups});
            },
            [&](std::int64_t first, std::int64_t) {
              const auto row = static_cast<std::uint64_t>(first);
              file_.write(at + row * code_row, rows.codes.data(), rows.codes.size());
              file_.write(scales_at + row * groups * 2, rows.scales.data(), rows.scales.size() * 2);
              file_.write(biases_at + row * groups * 2, rows.biases.data(), rows.biases.size() * 2);
            });
  }

  OutputFile file_;
  ThreadPool& pool_;
  const ChunkProgress& progress_;
};

class ShardReader {
 public:
  ShardReader(const fs::path& path, ThreadPool& pool, const ChunkProgress& progress)
      : path_(path), file_(path), pool_(pool), progress_(progress) {}

  ShardCheck run(const PlannedShard& shard) {
    const std::vector<Placed> placed = place(shard);
    if (file_.tensors().size() != placed.size())
      fail("", fmt::format("{} tensors", placed.size()), fmt::format("{}", file_.tensors().size()));
    for (const Placed& p : placed) {
      const TensorEntry* found = file_.find(p.name);
      if (found == nullptr || found->dtype != p.dtype || found->shape != p.shape)
        fail(p.name, describe_type(p.dtype, p.shape), found == nullptr ? "none" : describe(*found));
    }
    for (const PlannedTensor& tensor : shard.tensors)
      tensor.format ? check_affine(tensor) : check_plain(tensor);
    check_.bytes = file_.file().size();
    check_.sha256 = file_sha256(path_);
    return std::move(check_);
  }

 private:
  [[noreturn]] void fail(const std::string& tensor, const std::string& expected,
                         const std::string& got) const {
    const std::string where = tensor.empty() ? path_.string() : fmt::format("{}: {}", path_.string(), tensor);
    fail_expected(ErrorCode::kIo, where, expected, got);
  }

  void check_plain(const PlannedTensor& tensor) {
    const TensorEntry& stored = *file_.find(tensor.name);
    if (tensor.is_copied) {
      if (std::memcmp(stored.data, tensor.source.tensors.front()->data, stored.bytes) != 0)
        fail(tensor.name, "the bytes that were written", "others");
      tell(progress_, tensor.bytes());
      return;
    }
    const std::int64_t in = tensor.source.in;
    const std::size_t row_bytes = static_cast<std::size_t>(in) * size_of(tensor.dtype);
    ChunkWalk(tensor, pool_, progress_)
        .run([](std::int64_t, std::int64_t) {},
             [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
               std::vector<float> values(static_cast<std::size_t>((end - begin) * in));
               std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin) * row_bytes);
               tensor.source.read(first + begin, end - begin, values);
               shift(tensor, values);
               store_plain(tensor.dtype, values, bytes.data());
               const std::byte* got = stored.data + static_cast<std::size_t>(first + begin) * row_bytes;
               if (std::memcmp(got, bytes.data(), bytes.size()) != 0)
                 fail(tensor.name, "the values that were written", "others");
             },
             [&](std::int64_t first, std::int64_t count) { drop_stored(stored, first, count, row_bytes); });
  }

  void check_affine(const PlannedTensor& tensor) {
    const TensorEntry& codes = *file_.find(tensor.name + ".weight");
    const TensorEntry& scales = *file_.find(tensor.name + ".scales");
    const TensorEntry& biases = *file_.find(tensor.name + ".biases");
    const std::int64_t in = tensor.source.in;
    const auto code_row = static_cast<std::size_t>(in * tensor.format->bits / 8);
    const auto groups = static_cast<std::size_t>(in / tensor.format->group);
    // Sums are joined row by row in their order: the report does not depend on the number of workers.
    std::vector<QuantisationError> sums;
    ChunkWalk(tensor, pool_, progress_)
        .run([&](std::int64_t, std::int64_t count) { sums.assign(static_cast<std::size_t>(count), {}); },
             [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
               std::vector<float> values(static_cast<std::size_t>(in));
               StoredRows row;
               row.resize(1, code_row, groups);
               for (std::int64_t r = begin; r < end; ++r) {
                 tensor.source.read(first + r, 1, values);
                 const auto at = static_cast<std::size_t>(first + r);
                 std::memcpy(row.codes.data(), codes.data + at * code_row, code_row);
                 std::memcpy(row.scales.data(), scales.data + at * groups * 2, groups * 2);
                 std::memcpy(row.biases.data(), biases.data + at * groups * 2, groups * 2);
                 std::int64_t worst = -1;
                 sums[static_cast<std::size_t>(r)] = compare_affine_rows(
                     values, *tensor.format, {row.codes.data(), row.scales.data(), row.biases.data()}, worst);
                 if (worst >= 0)
                   fail(tensor.name + ".weight", "weights within half a step of their source",
                        fmt::format("another one at row {}, column {}", first + r, worst));
               }
             },
             [&](std::int64_t first, std::int64_t count) {
               drop_stored(codes, first, count, code_row);
               drop_stored(scales, first, count, groups * 2);
               drop_stored(biases, first, count, groups * 2);
               QuantisationError& total = check_.errors[{tensor.format->bits, tensor.format->group}];
               for (const QuantisationError& sum : sums) total.add(sum);
             });
  }

  /// The file that is read back is not looked at again until it is hashed.
  void drop_stored(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                   std::size_t row_bytes) const {
    file_.file().drop_pages(tensor.data + static_cast<std::size_t>(first) * row_bytes,
                            static_cast<std::size_t>(count) * row_bytes);
  }

  fs::path path_;
  SafetensorsFile file_;
  ThreadPool& pool_;
  const ChunkProgress& progress_;
  ShardCheck check_;
};

}  // namespace

void write_shard(const fs::path& path, const PlannedShard& shard, ThreadPool& pool,
                 const ChunkProgress& progress) {
  ShardWriter(path, pool, progress).run(shard);
}

ShardCheck check_shard(const fs::path& path, const PlannedShard& shard, ThreadPool& pool,
                       const ChunkProgress& progress) {
  return ShardReader(path, pool, progress).run(shard);
}

std::string file_sha256(const fs::path& path) {
  constexpr std::size_t kStep = std::size_t{16} << 20;
  const MappedFile file(path);
  file.advise_sequential();
  Sha256 hash;
  for (std::size_t at = 0; at < file.size(); at += kStep) {
    const auto part = file.bytes().subspan(at, std::min<std::size_t>(kStep, file.size() - at));
    hash.update(part);
    file.drop_pages(part.data(), part.size());
  }
  return hash.finish_hex();
}

void write_text_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(0, text.data(), text.size());
  file.close();
}

}  // namespace mererun
