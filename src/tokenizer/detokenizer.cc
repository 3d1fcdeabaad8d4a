#include "tokenizer/detokenizer.h"

#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace mererun {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, SpecialTokens special)
    : tokenizer_(std::move(tokenizer)), special_(special) {
  MERERUN_CHECK(tokenizer_ != nullptr, "a detokenizer needs a tokenizer");
}

void Detokenizer::append(std::span<const TokenId> ids, std::string& out) {
  for (const TokenId id : ids) {
    if (special_ == SpecialTokens::kSkip && tokenizer_->is_special(id)) continue;
    pending_ += tokenizer_->token_bytes(id);
  }
  // Only the last character can be incomplete, and it begins at one of the last three bytes.
  std::size_t complete = pending_.size();
  for (std::size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
    const std::size_t pos = pending_.size() - back;
    if (utf8_step(pending_, pos).kind == Utf8Kind::kIncomplete) complete = pos;
  }
  append_lossy_utf8(std::string_view(pending_).substr(0, complete), out);
  pending_.erase(0, complete);
}

std::string Detokenizer::append(TokenId id) {
  std::string text;
  append(std::span(&id, 1), text);
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  append_lossy_utf8(pending_, text);
  pending_.clear();
  return text;
}

}  // namespace mererun
