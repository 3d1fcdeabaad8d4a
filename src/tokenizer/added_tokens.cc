#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace mererun {

namespace {

template <typename Children>
auto child_of(Children& children, char c) {
  return std::find_if(children.begin(), children.end(),
                      [c](const auto& child) { return child.first == static_cast<unsigned char>(c); });
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    std::uint32_t node = 0;
    for (const char c : token.content) {
      const auto child = child_of(nodes_[node].children, c);
      if (child != nodes_[node].children.end()) {
        node = child->second;
      } else {
        const auto fresh = static_cast<std::uint32_t>(nodes_.size());
        nodes_[node].children.emplace_back(static_cast<unsigned char>(c), fresh);
        nodes_.emplace_back();
        node = fresh;
      }
    }
    nodes_[node].id = token.id;
    starts_[static_cast<unsigned char>(token.content[0])] = true;
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find(std::string_view text,
                                                                std::size_t pos) const {
  for (std::size_t begin = pos; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size();) {
      const auto child = child_of(nodes_[node].children, text[end]);
      if (child == nodes_[node].children.end()) break;
      node = child->second;
      ++end;
      if (nodes_[node].id >= 0) longest = Match{begin, end, nodes_[node].id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace mererun
