#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace mererun {

/// SHA-256 (FIPS 180-4) of a stream of bytes.
///
/// Thread-safety: one thread only.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// The digest of everything so far. The object starts over afterwards.
  std::array<std::uint8_t, 32> finish();
  /// The same as 64 lower-case hex digits.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 64 lower-case hex digits.
std::string sha256_hex(std::string_view text);
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace mererun
