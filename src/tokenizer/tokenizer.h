#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mererun {

/// What the text of an added token (`<|im_start|>`, `<think>`) inside an encoded text means.
enum class AddedTokenText {
  kToken,  // the token itself
  kPlain,  // ordinary characters: for text that must not be able to forge control tokens
};

/// Whether decoding leaves out the tokens that the file marks special.
enum class SpecialTokens { kKeep, kSkip };

struct EncodeOptions {
  AddedTokenText added_tokens = AddedTokenText::kToken;
};

/// The byte-level BPE tokenizer of a checkpoint: text to token ids and back, with the ids of Hugging Face
/// `tokenizers` on the same tokenizer.json. Adds no begin or end token.
///
/// A tokenizer.json does not say which tokens end a reply; generation_config.json, config.json and
/// tokenizer_config.json do, by id or by a text that find_token() resolves.
///
/// Thread-safety: thread-safe; immutable once loaded.
class Tokenizer final {
 public:
  /// Reads and checks a tokenizer.json (see parse_tokenizer_json for what is accepted).
  /// Errors: kNotFound, kIo, kCorruptData, kUnsupported; the message names file and key.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& tokenizer_json);
  /// The same from the text of the file; `name` stands for the path in messages.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json, const std::string& name);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Token ids of `text`: added tokens first, then NFC, pre-tokenizer and BPE on what lies between them. Time
  /// is O(n log n) for any text. Every maximal ill-formed UTF-8 subpart counts as U+FFFD. Errors:
  /// kInvalidArgument for a text of more than 1 GiB.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;

  /// Text of a token sequence: the concatenated bytes, U+FFFD for every maximal ill-formed subpart. Ids
  /// without a token (padding rows of the embedding) give nothing.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids,
                                   SpecialTokens special = SpecialTokens::kKeep) const;

  /// Highest id + 1, added tokens included. The model's own vocabulary may be padded beyond it.
  [[nodiscard]] int vocabulary_size() const;
  /// The bytes of a token, not necessarily whole characters; empty for an id without a token.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;
  /// True for added tokens that the file marks special.
  [[nodiscard]] bool is_special(TokenId id) const;
  /// True for every added token, special or not: tokens that stand for markup, not for their letters.
  [[nodiscard]] bool is_added(TokenId id) const;
  /// The token whose bytes are exactly `text`; an added token wins over a vocabulary entry.
  [[nodiscard]] std::optional<TokenId> find_token(std::string_view text) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;

  std::unique_ptr<const Parts> parts_;
};

}  // namespace mererun
