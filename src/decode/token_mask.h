#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace mererun {

/// The ids a constraint allows as the next token, one bit an id. Ids outside [0, vocabulary) are not allowed.
///
/// Thread-safety: thread-compatible.
class TokenMask {
 public:
  /// Allows nothing.
  explicit TokenMask(int vocabulary)
      : vocabulary_(vocabulary), words_((static_cast<std::size_t>(vocabulary) + 63) / 64, 0) {}

  int vocabulary() const { return vocabulary_; }
  bool allows(TokenId id) const {
    return id >= 0 && id < vocabulary_ && (words_[word_of(id)] >> (id & 63) & 1) != 0;
  }
  /// `id` must be in [0, vocabulary).
  void allow(TokenId id) { words_[word_of(id)] |= std::uint64_t{1} << (id & 63); }
  void forbid(TokenId id) { words_[word_of(id)] &= ~(std::uint64_t{1} << (id & 63)); }
  /// Allows what `other`, of the same vocabulary, allows as well.
  void allow_all_of(const TokenMask& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }

  /// Bit i of word w stands for id 64 w + i; bits past the vocabulary are 0.
  std::span<const std::uint64_t> words() const { return words_; }

 private:
  static std::size_t word_of(TokenId id) { return static_cast<std::size_t>(id) >> 6; }

  int vocabulary_;
  std::vector<std::uint64_t> words_;
};

}  // namespace mererun
