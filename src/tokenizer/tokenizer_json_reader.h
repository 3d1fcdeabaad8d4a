#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer_json.h"

namespace mererun {

/// Ids above this are refused: they would only serve to exhaust memory.
constexpr TokenId kMaxTokenId = (1 << 22) - 1;

/// Vocabulary entries whose key is not in the byte-level alphabet: text and id.
using ForeignKeys = std::vector<std::pair<std::string, TokenId>>;

/// Reads `model.vocab` and `model.merges` of a tokenizer.json into `file` and `foreign_keys` and returns the
/// rest of the document, unchecked. Internal to the tokenizer folder.
///
/// Errors: kCorruptData, naming the file (`file.name`) and the key.
nlohmann::json read_tokenizer_json(std::string_view text, TokenizerFile& file, ForeignKeys& foreign_keys);

}  // namespace mererun
