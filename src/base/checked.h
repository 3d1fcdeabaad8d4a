#pragma once

#include <cstdint>
#include <optional>

namespace mererun {

/// Overflow-safe multiplication of sizes read from untrusted bytes; no value means that it does not fit.
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

}  // namespace mererun
