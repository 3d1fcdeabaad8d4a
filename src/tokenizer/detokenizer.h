#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/types.h"
#include "tokenizer/tokenizer.h"

namespace mererun {

/// Turns a stream of tokens into text, releasing whole characters only.
///
/// Tokens may end inside a character; its bytes wait (at most three) until later tokens complete it or prove
/// that nothing can, in which case they become one U+FFFD. What was released is never taken back: for every
/// way to cut a token sequence, the concatenated results of append() and one flush() equal
/// Tokenizer::decode() of all ids.
///
/// Thread-safety: one thread only. Copyable; a copy continues on its own.
class Detokenizer final {
 public:
  /// tokenizer  not null; kept alive by the detokenizer
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer,
                       SpecialTokens special = SpecialTokens::kKeep);

  /// Appends to `out` the text that `ids` make final: well-formed UTF-8, possibly nothing.
  void append(std::span<const TokenId> ids, std::string& out);
  /// Text that one more token makes final.
  [[nodiscard]] std::string append(TokenId id);

  /// End of the stream: U+FFFD for a character that never came to its end, else nothing. Afterwards the
  /// detokenizer is as new.
  [[nodiscard]] std::string flush();

  /// The bytes that wait for the rest of their character.
  std::string_view pending_bytes() const { return pending_; }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  SpecialTokens special_;
  std::string pending_;  // an incomplete, so far well-formed character
};

}  // namespace mererun
