#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "decode/token_mask.h"
#include "grammar/text_slice.h"
#include "grammar/token_trie.h"

namespace mererun {

class Tokenizer;

/// The tokens of a slice: whole, well-formed characters of it and nothing else.
struct SliceTokens {
  std::vector<TokenMask> up_to;  // [n] tokens of at most n characters, n = 0 .. the longest
  TokenTrie rest;                // the tokens outside the slice
};

/// The tokens of one vocabulary as grammars see them: by bytes.
///
/// Added tokens (`<tool_call>`, `<|im_end|>`) are markup: no text spells them. A grammar names one by its
/// marker, bytes that no UTF-8 text holds. Tokens with the bytes 0xFE and 0xFF, empty tokens, and of several
/// tokens with the same bytes all but the first, are never allowed. End-of-sequence ids are allowed where the
/// output may end, and only there.
///
/// Thread-safety: thread-safe; immutable once built.
class GrammarVocabulary {
 public:
  struct Token {
    std::string_view bytes;
    bool is_added = false;
  };
  /// A vocabulary of tokens [V]; takes 0.1 s and some 20 MiB for V = 248,320.
  GrammarVocabulary(std::span<const Token> tokens, std::vector<TokenId> eos_ids);
  static std::shared_ptr<const GrammarVocabulary> build(const Tokenizer& tokenizer,
                                                        std::vector<TokenId> eos_ids);

  int size() const { return static_cast<int>(texts_.size()); }
  const std::vector<TokenId>& eos_ids() const { return eos_ids_; }
  /// The bytes that a grammar reads for a token: its text, or its marker; empty for tokens never allowed.
  std::string_view grammar_bytes(TokenId id) const;
  /// The text of any token.
  std::string_view text(TokenId id) const { return texts_[static_cast<std::size_t>(id)]; }
  /// The marker of the added token with exactly this text, if there is one.
  std::optional<std::string> marker_of(std::string_view added) const;

  const TokenTrie& trie() const { return trie_; }
  const SliceTokens& slice(TextSlice slice) const { return slices_[static_cast<std::size_t>(slice) - 1]; }

 private:
  void build_slice(TextSlice slice);

  std::string arena_;
  std::vector<std::string_view> texts_;               // [V]
  std::unordered_map<TokenId, std::string> markers_;  // of added tokens
  std::vector<bool> is_usable_;                       // [V] reachable through the trie
  std::vector<TokenId> eos_ids_;
  TokenTrie trie_;
  std::vector<SliceTokens> slices_;
};

}  // namespace mererun
