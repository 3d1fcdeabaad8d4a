#include "grammar/token_trie.h"

#include <algorithm>

namespace mererun {

TokenTrie::TokenTrie(std::vector<Entry> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<std::uint32_t> open;  // nodes on the path to the token before
  std::string_view before;
  for (const auto& [bytes, id] : tokens) {
    const auto shared = static_cast<std::size_t>(
        std::mismatch(bytes.begin(), bytes.end(), before.begin(), before.end()).first - bytes.begin());
    for (std::size_t i = shared; i < open.size(); ++i)
      nodes_[open[i]].size = static_cast<std::uint32_t>(nodes_.size()) - open[i];
    open.resize(shared);
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({.size = 0,
                        .token = -1,
                        .depth = static_cast<std::uint16_t>(i + 1),
                        .byte = static_cast<std::uint8_t>(bytes[i])});
    }
    nodes_[open.back()].token = id;
    before = bytes;
    max_depth_ = std::max(max_depth_, static_cast<int>(bytes.size()));
  }
  for (const std::uint32_t node : open) nodes_[node].size = static_cast<std::uint32_t>(nodes_.size()) - node;
}

}  // namespace mererun
