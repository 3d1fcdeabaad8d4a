#pragma once

#include <cstdint>

namespace mererun {

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kSplitMixIncrement = 0x9E3779B97F4A7C15ULL;

/// Its output for one state, the increment added already: a bijection of 64-bit numbers that mixes them well.
/// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", with the constants of
/// Stafford's variant 13.
constexpr std::uint64_t split_mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

}  // namespace mererun
