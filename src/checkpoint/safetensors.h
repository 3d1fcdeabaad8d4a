#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/mapped_file.h"
#include "checkpoint/tensor_entry.h"

namespace mererun {

/// Longest JSON header that is read, in bytes; the limit of the format's reference reader.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100ull << 20;

/// What one safetensors image holds: an 8-byte little-endian length n, n bytes of JSON, then raw data.
struct SafetensorsContent {
  std::vector<TensorEntry> tensors;  // ascending by stored name; `data` points into the image, `file` is null
  std::string_view header;           // the JSON text, a view of the image
  std::uint64_t data_offset = 0;     // of the first data byte in the image
  std::vector<std::string> notes;    // oddities that do no harm, such as bytes that no tensor uses
};

/// Parses and checks the header of a whole file image. Nothing is allocated from a size that was not checked
/// against the image, and no tensor data is read.
///
/// where   the file's name, for messages
///
/// Errors: kCorruptData, naming file, tensor, expected and got, for a header longer than the image or than
/// kMaxSafetensorsHeaderBytes, bad JSON, a duplicate name or key, a missing or unknown field, offsets that
/// are negative, reversed, overlapping, past the end or unlike dtype x shape, a shape whose product overflows
/// or that has more than 8 dimensions, bytes behind the last tensor; kUnsupported for a dtype that this build
/// does not know. Source: the safetensors format description (Hugging Face), except that unused bytes between
/// tensors are a note, not an error.
/// Thread-safety: thread-safe.
SafetensorsContent parse_safetensors(std::span<const std::byte> image, std::string_view where);

/// One mapped safetensors file. Entries point into the mapping, which lives as long as this object.
///
/// Thread-safety: immutable after construction.
class SafetensorsFile {
 public:
  /// Errors: those of MappedFile and parse_safetensors.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const MappedFile& file() const { return *file_; }
  std::string filename() const { return file_->path().filename().string(); }
  std::span<const TensorEntry> tensors() const { return content_.tensors; }
  std::string_view header() const { return content_.header; }
  /// Everything after the header.
  std::span<const std::byte> data() const { return file_->bytes().subspan(content_.data_offset); }
  std::span<const std::string> notes() const { return content_.notes; }
  /// The tensor with this stored name, or null.
  const TensorEntry* find(std::string_view stored_name) const;

 private:
  std::unique_ptr<const MappedFile> file_;  // on the heap: entries keep its address when this object moves
  SafetensorsContent content_;
};

}  // namespace mererun
