#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/tensor_names.h"

namespace mererun {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::uint64_t kLengthBytes = 8;

std::optional<DType> parse_dtype(std::string_view text) {
  constexpr DType kKnown[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32,
                              DType::kI16, DType::kI8,   DType::kU32, DType::kU8,  DType::kF8E4M3};
  for (const DType dtype : kKnown) {
    if (text == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

/// Follows the JSON events of a header. Its states are the only nesting that the format has, so depth is
/// bounded without a counter.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::span<const std::byte> data, std::string_view where) : data_(data), where_(where) {}

  std::vector<TensorEntry> take_tensors() { return std::move(tensors_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_float(double, const std::string& text) override { return unexpected("the number " + text); }
  bool binary(std::string&) { return unexpected("binary data"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool number_integer(std::int64_t value) override {  // the parser calls this for negative numbers only
    if (state_ == State::kShape || state_ == State::kOffsets) {
      fail(in_tensor(), fmt::format("{} of 0 or more", field_), fmt::format("{}", value));
    }
    return unexpected(fmt::format("the number {}", value));
  }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ == State::kShape) {
      if (shape_.size() == kMaxRank)
        fail(in_tensor(), fmt::format("at most {} dimensions", kMaxRank), "more");
      if (value > static_cast<std::uint64_t>(INT64_MAX)) {
        fail(in_tensor(), "a dimension below 2^63", fmt::format("{}", value));
      }
      shape_.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (num_offsets_ == offsets_.size()) fail(in_tensor(), "two data_offsets", "more");
      offsets_[num_offsets_++] = value;
      return true;
    }
    return unexpected(fmt::format("the number {}", value));
  }

  bool string(std::string& text) override {
    if (state_ == State::kMetadata) return true;
    if (state_ == State::kTensor && field_ == "dtype") {
      dtype_ = parse_dtype(text);
      if (!dtype_) {
        throw Error(
            ErrorCode::kUnsupported,
            fmt::format("{}: expected a dtype that this build knows (BF16, F16, F32, F8_E4M3, I8, I16, I32, "
                        "I64, U8, U32), got {}",
                        in_tensor(), quote(text)));
      }
      return true;
    }
    return unexpected(quote(text));
  }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop) {
      if (name_ == "__metadata__") {
        if (std::exchange(has_metadata_, true)) fail(std::string(where_), "one __metadata__", "two");
        state_ = State::kMetadata;
      } else {
        state_ = State::kTensor;
        dtype_.reset();
        shape_.clear();
        num_offsets_ = 0;
        has_shape_ = has_offsets_ = has_dtype_ = false;
      }
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) finish_tensor();
    state_ = state_ == State::kTop ? State::kDone : State::kTop;
    return true;
  }

  bool key(std::string& text) override {
    if (state_ == State::kTop) {
      name_ = text;
    } else if (state_ == State::kMetadata) {
      if (!metadata_keys_.insert(text).second) {
        fail(std::string(where_), "distinct keys in __metadata__", quote(text) + " twice");
      }
    } else {
      field_ = text;
      bool* seen = text == "dtype"          ? &has_dtype_
                   : text == "shape"        ? &has_shape_
                   : text == "data_offsets" ? &has_offsets_
                                            : nullptr;
      if (seen == nullptr) fail(in_tensor(), "only dtype, shape and data_offsets", quote(text));
      if (std::exchange(*seen, true)) fail(in_tensor(), "one " + field_, "two");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::kTensor && field_ == "shape") {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && field_ == "data_offsets") {
      state_ = State::kOffsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string_view what = error.what();  // "[json.exception...] parse error at ..."
    if (const auto end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    fail(std::string(where_), "a JSON header", fmt::format("at byte {}: {}", position, what));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kDone };

  [[noreturn]] static void fail(const std::string& where, std::string_view expected, std::string_view got) {
    fail_expected(ErrorCode::kCorruptData, where, expected, got);
  }

  std::string in_tensor() const { return fmt::format("{}: tensor {}", where_, quote(name_)); }

  [[noreturn]] bool unexpected(const std::string& got) const {
    switch (state_) {
      case State::kTop: fail(in_tensor(), "an object", got);
      case State::kMetadata: fail(fmt::format("{}: __metadata__", where_), "texts only", got);
      case State::kTensor:
        fail(in_tensor(), field_ == "dtype" ? "a dtype name" : fmt::format("a list as {}", field_), got);
      case State::kShape:
      case State::kOffsets: fail(in_tensor(), fmt::format("whole numbers in {}", field_), got);
      default: fail(std::string(where_), "an object as header", got);
    }
  }

  void finish_tensor() {
    if (!has_dtype_) fail(in_tensor(), "a dtype", "none");
    if (!has_shape_) fail(in_tensor(), "a shape", "none");
    if (!has_offsets_ || num_offsets_ != 2) {
      fail(in_tensor(), "two data_offsets", fmt::format("{}", has_offsets_ ? num_offsets_ : 0));
    }
    const auto [begin, end] = offsets_;
    if (begin > end) fail(in_tensor(), "data_offsets in order", fmt::format("[{}, {}]", begin, end));
    if (end > data_.size()) {
      fail(in_tensor(), fmt::format("data_offsets inside the {} data bytes", data_.size()),
           fmt::format("[{}, {}] (file truncated?)", begin, end));
    }
    std::optional<std::uint64_t> bytes = size_of(*dtype_);
    for (const std::int64_t dim : shape_) {
      bytes = checked_mul(*bytes, static_cast<std::uint64_t>(dim));
      if (!bytes) {
        fail(in_tensor(), "a shape whose bytes fit 64 bits", describe_type(*dtype_, shape_));
      }
    }
    if (*bytes != end - begin) {
      fail(in_tensor(), fmt::format("{} bytes for {}", *bytes, describe_type(*dtype_, shape_)),
           fmt::format("data_offsets [{}, {}], {} bytes", begin, end, end - begin));
    }
    TensorEntry& entry = tensors_.emplace_back();
    entry.name = canonical_name(name_);
    entry.stored_name = std::move(name_);
    entry.dtype = *dtype_;
    entry.shape = shape_;
    entry.data = data_.data() + begin;
    entry.bytes = *bytes;
    entry.is_vision = is_vision_name(entry.stored_name);
  }

  std::span<const std::byte> data_;
  std::string_view where_;
  std::vector<TensorEntry> tensors_;

  State state_ = State::kStart;
  std::string name_;   // last key of the top level
  std::string field_;  // last key of the tensor
  std::optional<DType> dtype_;
  std::vector<std::int64_t> shape_;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t num_offsets_ = 0;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  std::set<std::string> metadata_keys_;
};

void refuse_duplicates(const std::vector<TensorEntry>& sorted, std::string_view where) {
  const auto same = [](const TensorEntry& a, const TensorEntry& b) { return a.stored_name == b.stored_name; };
  const auto twin = std::adjacent_find(sorted.begin(), sorted.end(), same);
  if (twin == sorted.end()) return;
  fail_expected(ErrorCode::kCorruptData, where, "every tensor once", quote(twin->stored_name) + " twice");
}

/// Refuses overlapping tensors and bytes behind the last one; returns how many data bytes belong to none.
std::uint64_t count_unused_bytes(const std::vector<TensorEntry>& tensors, std::span<const std::byte> data,
                                 std::string_view where) {
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.bytes != 0) by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->data < b->data; });
  std::uint64_t used = 0, end = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry* tensor : by_offset) {
    if (previous != nullptr && tensor->data < previous->data + previous->bytes) {
      fail_expected(
          ErrorCode::kCorruptData, fmt::format("{}: tensor {}", where, quote(tensor->stored_name)),
          fmt::format("data_offsets from {} on", previous->data + previous->bytes - data.data()),
          fmt::format("{}, inside tensor {}", tensor->data - data.data(), quote(previous->stored_name)));
    }
    used += tensor->bytes;
    end = static_cast<std::uint64_t>(tensor->data - data.data()) + tensor->bytes;
    previous = tensor;
  }
  if (end != data.size()) {
    fail_expected(ErrorCode::kCorruptData, where, fmt::format("{} data bytes, the last tensor's end", end),
                  fmt::format("{}", data.size()));
  }
  return end - used;
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> image, std::string_view where) {
  const auto fail = [&](std::string_view expected, std::string_view got) {
    fail_expected(ErrorCode::kCorruptData, where, expected, got);
  };
  if (image.size() < kLengthBytes) {
    fail("a safetensors file of 8 bytes or more", fmt::format("{} bytes", image.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::uint64_t>(image[i]) << (8 * i);
  if (length > kMaxSafetensorsHeaderBytes) {
    fail(fmt::format("a safetensors file, with a header of at most {} bytes", kMaxSafetensorsHeaderBytes),
         fmt::format("{} (another kind of file?)", length));
  }
  if (length > image.size() - kLengthBytes) {
    fail(fmt::format("a header of {} bytes", length),
         fmt::format("{} bytes after the length (file truncated?)", image.size() - kLengthBytes));
  }
  SafetensorsContent content;
  content.data_offset = kLengthBytes + length;
  content.header = {reinterpret_cast<const char*>(image.data()) + kLengthBytes,
                    static_cast<std::size_t>(length)};
  const std::span<const std::byte> data = image.subspan(content.data_offset);

  // The JSON library takes a NUL for the end of the text.
  if (const auto nul = content.header.find('\0'); nul != std::string_view::npos)
    fail("a header of JSON text", fmt::format("a NUL at byte {} of it", nul));
  HeaderReader reader(data, where);
  (void)nlohmann::json::sax_parse(content.header, &reader);  // every failure throws from the reader
  content.tensors = reader.take_tensors();
  std::sort(content.tensors.begin(), content.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.stored_name < b.stored_name; });
  refuse_duplicates(content.tensors, where);
  if (const std::uint64_t unused = count_unused_bytes(content.tensors, data, where); unused != 0) {
    content.notes.push_back(fmt::format("{}: {} data bytes belong to no tensor", where, unused));
  }
  return content;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_unique<const MappedFile>(path)),
      content_(parse_safetensors(file_->bytes(), path.string())) {
  for (TensorEntry& tensor : content_.tensors) tensor.file = file_.get();
}

const TensorEntry* SafetensorsFile::find(std::string_view stored_name) const {
  const auto found = std::lower_bound(
      content_.tensors.begin(), content_.tensors.end(), stored_name,
      [](const TensorEntry& tensor, std::string_view name) { return tensor.stored_name < name; });
  return found != content_.tensors.end() && found->stored_name == stored_name ? &*found : nullptr;
}

}  // namespace mererun
