#include "device/buffer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace mererun {

Buffer::Buffer(void* data, std::size_t bytes, Release release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::move(other.release_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr && release_) release_(data_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    release_ = std::move(other.release_);
  }
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr && release_) release_(data_);
}

Buffer allocate_host(std::size_t bytes) {
  if (bytes == 0) return {};
  constexpr std::size_t kAlignment = 64;
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = padded < bytes ? nullptr : std::aligned_alloc(kAlignment, padded);
  if (data == nullptr)
    throw Error(ErrorCode::kOutOfMemory, fmt::format("host memory: expected {} bytes, got none", bytes));
  std::memset(data, 0, padded);
  return Buffer(data, bytes, [](void* p) { std::free(p); });
}

}  // namespace mererun
