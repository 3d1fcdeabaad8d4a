#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"

namespace mererun {

/// Tokens by their bytes, as a trie laid out in the order of a depth-first walk: a walk is a scan, and what
/// lies below a node is skipped by one addition.
///
/// Thread-safety: immutable once built.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t size;   // nodes of the subtree, this one included
    std::int32_t token;   // a token that ends here, or -1
    std::uint16_t depth;  // bytes up to here, at least 1
    std::uint8_t byte;
  };

  /// No two tokens have the same bytes, and none is empty.
  using Entry = std::pair<std::string_view, TokenId>;
  explicit TokenTrie(std::vector<Entry> tokens = {});

  const std::vector<Node>& nodes() const { return nodes_; }
  /// Of the longest token.
  int max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  int max_depth_ = 0;
};

}  // namespace mererun
