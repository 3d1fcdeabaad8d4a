#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer_json.h"

namespace mererun {

/// Ids above this are refused: they would only serve to exhaust memory.
constexpr TokenId kMaxTokenId = (1 << 22) - 1;

/// Event handler that streams `model.vocab` and `model.merges` of a tokenizer.json into a TokenizerFile and
/// keeps everything else as a small JSON value. A DOM of a real file (half a million strings) would cost more
/// time and memory than the rest of loading together.
///
/// Errors: kCorruptData, naming the file and the key. Thread-safety: one thread only.
/// Internal to the tokenizer folder: the one header here that shows a JSON type.
class TokenizerJsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  explicit TokenizerJsonReader(TokenizerFile& file) : file_(file) {}

  /// Checks that vocabulary and merges were present; call once, after parsing.
  void finish() const;
  /// The document without vocabulary and merges.
  const Json& rest() const { return rest_; }
  /// Vocabulary entries whose key is not in the byte-level alphabet.
  const std::vector<std::pair<std::string, TokenId>>& foreign_keys() const { return foreign_keys_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(std::size_t size) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t size) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) override;

 private:
  enum class Where { kRest, kVocab, kMerges, kMergePair };

  [[noreturn]] void corrupt(std::string_view key, std::string_view expected, std::string_view got) const;
  bool scalar(Json value);
  Json& place(Json value);
  bool is_at(const char* model_key) const;
  TokenizerFile::Slice append_merge_part(std::string_view key);
  std::string merge_name() const;

  TokenizerFile& file_;
  Json rest_;
  std::vector<Json*> open_;        // containers of rest_ that are not closed yet, outermost first
  std::string key_;                // key of the value that comes next, inside the innermost object of rest_
  std::vector<std::string> path_;  // keys of the open containers
  Where where_ = Where::kRest;
  bool vocab_seen_ = false;
  bool merges_seen_ = false;
  std::string vocab_key_;                                      // key whose id comes next
  std::vector<TokenizerFile::Slice> pair_;                     // parts of the current merge
  std::vector<std::pair<std::string, TokenId>> foreign_keys_;  // rare
};

}  // namespace mererun
