#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace mererun {

/// Order-dependent hash of a token sequence, extended one id at a time from 0. Finds candidates only: equal
/// hashes can be made on purpose, so every match is confirmed id by id.
constexpr std::uint64_t extend_hash(std::uint64_t hash, TokenId id) {
  hash ^= static_cast<std::uint32_t>(id) + 0x9E3779B97F4A7C15ull;
  hash *= 0xBF58476D1CE4E5B9ull;
  return hash ^ (hash >> 31);
}

constexpr std::uint64_t hash_tokens(std::span<const TokenId> ids) {
  std::uint64_t hash = 0;
  for (const TokenId id : ids) hash = extend_hash(hash, id);
  return hash;
}

/// The hash of each prefix, [n] of the first n ids: size() + 1 of them.
inline std::vector<std::uint64_t> prefix_hashes(std::span<const TokenId> ids) {
  std::vector<std::uint64_t> hashes{0};
  hashes.reserve(ids.size() + 1);
  for (const TokenId id : ids) hashes.push_back(extend_hash(hashes.back(), id));
  return hashes;
}

}  // namespace mererun
