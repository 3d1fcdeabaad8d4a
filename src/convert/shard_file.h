#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "convert/plan.h"
#include "convert/quantise_affine.h"

namespace mererun {

class ThreadPool;

/// Quantisation errors by (bits, group).
using ErrorTable = std::map<std::pair<int, int>, QuantisationError>;

/// Called with the bytes of the source that were read since the last call; false stops the work.
using ChunkProgress = std::function<bool(std::uint64_t source_bytes)>;

/// Writes one safetensors file of the result, chunk by chunk on all workers: a chunk holds about 16 MiB of
/// f32 values. The file is on disk (fsync) when this returns. A file that is there is overwritten.
///
/// Errors: kCorruptData for NaN or infinity in the source; kIo, naming the file, when a write fails (a full
/// disk, a limit on file size); kCancelled when `progress` says so.
void write_shard(const std::filesystem::path& path, const PlannedShard& shard, ThreadPool& pool,
                 const ChunkProgress& progress);

struct ShardCheck {
  std::string sha256;  // of the whole file
  std::uint64_t bytes = 0;
  ErrorTable errors;
};

/// Reads a written file back and compares it with its plan and its source: names, types, shapes, every
/// unquantised value exactly, every quantised weight within the error of its format.
///
/// Errors: kIo, naming the file, if it is not what was written; kCancelled.
ShardCheck check_shard(const std::filesystem::path& path, const PlannedShard& shard, ThreadPool& pool,
                       const ChunkProgress& progress);

/// SHA-256 of a file in lower-case hex. Errors: kNotFound, kIo.
std::string file_sha256(const std::filesystem::path& path);

/// Writes a whole small file and waits until it is on disk. Errors: kIo, naming the file.
void write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace mererun
