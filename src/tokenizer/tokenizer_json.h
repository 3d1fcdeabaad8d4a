#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace mererun {

/// One entry of `added_tokens`: a text that is matched whole, before normalisation and BPE.
struct AddedToken {
  std::string content;  // UTF-8, not empty
  TokenId id;
  bool special;  // left out when decoding with special tokens skipped
};

/// The parts of a tokenizer.json that this project serves, checked and independent of JSON. Texts are slices
/// of `bytes`: vocabulary keys already turned back into raw bytes.
struct TokenizerFile {
  struct Slice {
    std::uint32_t offset;
    std::uint32_t length;
  };
  struct VocabEntry {
    Slice bytes;
    TokenId id;
  };
  struct Merge {
    Slice left;
    Slice right;
  };

  std::string name;               // path, for messages
  std::string bytes;              // arena of the slices
  std::vector<VocabEntry> vocab;  // model.vocab in file order
  std::vector<Merge> merges;      // model.merges; the index is the rank
  std::vector<AddedToken> added_tokens;
  std::string split_pattern;  // regular expression of pre_tokenizer
  bool normalize_nfc = false;

  std::string_view view(Slice s) const { return std::string_view(bytes).substr(s.offset, s.length); }
};

/// Parses and checks the text of a tokenizer.json; `name` is used in messages.
///
/// Accepted: model BPE, byte-level, without dropout, unknown token, affixes, byte fallback or
/// `ignore_merges`; merges as "left right" strings or [left, right] pairs; normalizer null, NFC or a Sequence
/// of NFC; pre_tokenizer Sequence[Split(Regex, Isolated), ByteLevel]; decoder ByteLevel; post_processor null
/// or ByteLevel; added tokens without lstrip, rstrip, single_word and normalized. `truncation` and `padding`
/// describe a caller's batch, not the tokenizer, and are ignored.
///
/// Errors: kCorruptData for malformed or contradictory content, kUnsupported for anything not in the list
/// above; both name the file and the key.
TokenizerFile parse_tokenizer_json(std::string_view json, std::string name);

}  // namespace mererun
