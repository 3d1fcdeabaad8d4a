#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "tokenizer/tokenizer_json.h"

namespace mererun {

/// Byte-level byte-pair encoding: a vocabulary of byte strings and ranked merges of token pairs.
///
/// Thread-safety: const members are thread-safe. The only state that changes after construction is a memo of
/// one byte per token ("does this token's text encode to itself?"), whose value is the same whoever computes
/// it.
///
/// Source: Sennrich, Haddow and Birch 2016, algorithm 1; equal to the BPE model of Hugging Face `tokenizers`.
class Bpe final {
 public:
  /// Takes vocabulary, merges and byte arena out of `file`.
  /// Errors: kCorruptData if a key or id occurs twice, one of the 256 single bytes has no token, or a merge
  /// names a text that is not in the vocabulary.
  explicit Bpe(TokenizerFile&& file);

  /// Appends the tokens of one pre-tokenized piece (any bytes). Merges the adjacent pair of lowest rank,
  /// leftmost among equals, until none applies. O(n log n).
  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;

  /// Id of exactly these bytes.
  std::optional<TokenId> find(std::string_view bytes) const;
  /// Bytes of a token; empty for an id that the vocabulary does not use.
  std::string_view token_bytes(TokenId id) const;
  /// Highest id + 1.
  int id_end() const { return static_cast<int>(token_slices_.size()); }

 private:
  struct VocabSlot {
    std::uint32_t tag;  // high half of the hash: most misses end without touching the token's bytes
    TokenId id;         // -1 is free
  };
  struct MergeSlot {
    std::uint64_t pair;  // left id in the high half, right id in the low half
    std::uint32_t rank;
    TokenId merged;
  };
  struct Node;
  enum class Memo : std::uint8_t { kUnknown, kEncodesToItself, kSplits };

  void add_vocabulary(const TokenizerFile& file);
  void add_merges(const TokenizerFile& file);
  std::size_t vocab_slot(std::string_view bytes, std::uint64_t hash) const;
  const MergeSlot& merge_slot(TokenId left, TokenId right) const;
  bool encodes_to_itself(TokenId id, std::string_view bytes) const;
  void merge_short(std::string_view piece, std::vector<TokenId>& out) const;
  void merge_long(std::string_view piece, std::vector<TokenId>& out) const;

  std::string bytes_;
  std::vector<TokenizerFile::Slice> token_slices_;  // by id
  std::vector<VocabSlot> vocab_slots_;              // open addressing by hash of the bytes
  std::vector<MergeSlot> merge_slots_;  // open addressing by hash of the pair; rank kNoRank is free
  TokenId byte_tokens_[256];
  std::unique_ptr<std::atomic<Memo>[]> memo_;  // by id
};

}  // namespace mererun
