#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace mererun {

/// SHA-256: pages are shared between conversations by this name alone, so it must withstand intent.
using PrefixDigest = std::array<std::uint8_t, 32>;

/// Lower-case hex digits of its first 16 bytes.
std::string short_hex(const PrefixDigest& digest);

/// Names of everything that a token sequence determines: its whole KV pages of 256 positions,
/// the pages of the draft head's cache, and the sequence itself.
///
/// They are chained: digest(i + 1) = SHA-256(digest(i), ids of page i). Time and memory linear in the ids.
class PrefixDigests {
 public:
  explicit PrefixDigests(std::span<const TokenId> ids);

  /// Trunk page i: positions [256 i, 256 (i + 1)) and all before them. Needs 256 (i + 1) ids.
  PrefixDigest trunk_page(int i) const;
  /// Head page i: transitions [256 i, 256 (i + 1)); the last one ends in the token after the page. Needs
  /// 256 (i + 1) + 1 ids.
  PrefixDigest head_page(int i) const;
  /// The whole sequence.
  PrefixDigest whole() const;

 private:
  std::span<const TokenId> ids_;
  std::vector<PrefixDigest> chain_;  // after 0, 1, .. whole pages
};

}  // namespace mererun
