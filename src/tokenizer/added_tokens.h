#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "tokenizer/tokenizer_json.h"

namespace mererun {

/// Finds added tokens in raw text: leftmost match, longest at equal start.
///
/// A trie tried at every place where some token can begin. Token length is bounded (see
/// parse_tokenizer_json), so the time is linear in the text. Thread-safety: thread-safe once built.
class AddedTokenMatcher final {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
    TokenId id;
  };

  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  /// The first match at or after byte `pos`.
  std::optional<Match> find(std::string_view text, std::size_t pos) const;

 private:
  struct Node {
    TokenId id = -1;  // token that ends here, or -1
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
  };

  std::vector<Node> nodes_;  // the first is the root
  std::array<bool, 256> starts_{};
};

}  // namespace mererun
