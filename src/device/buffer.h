#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace mererun {

/// Owns bytes on one device. Move-only; the release function travels with the bytes.
///
/// Thread-safety: thread-compatible.
class Buffer {
 public:
  using Release = std::function<void(void*)>;

  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Release release);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_;
};

/// Host memory aligned to 64 bytes, zeroed. Errors: kOutOfMemory.
Buffer allocate_host(std::size_t bytes);

}  // namespace mererun
