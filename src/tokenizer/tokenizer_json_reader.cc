#include "tokenizer/tokenizer_json_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"

namespace mererun {

namespace {

constexpr std::size_t kMaxDepth = 32;  // of the part kept as JSON; real files need 5

// Event handler that streams `model.vocab` and `model.merges` of a tokenizer.json into a TokenizerFile and
// keeps everything else as a small JSON value. A DOM of a real file (half a million strings) would cost more
// time and memory than the rest of loading together.
class TokenizerJsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  explicit TokenizerJsonReader(TokenizerFile& file) : file_(file) {}

  // Checks that vocabulary and merges were present; call once, after parsing.
  void finish() const;
  /// The JSON library takes a NUL for the end of the text.
  void refuse_nul(std::string_view text) const;
  // The document without vocabulary and merges.
  Json& rest() { return rest_; }
  // Vocabulary entries whose key is not in the byte-level alphabet.
  ForeignKeys& foreign_keys() { return foreign_keys_; }

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
  std::string vocab_key_;                   // key whose id comes next
  std::vector<TokenizerFile::Slice> pair_;  // parts of the current merge
  ForeignKeys foreign_keys_;                // rare
};

void TokenizerJsonReader::corrupt(std::string_view key, std::string_view expected,
                                  std::string_view got) const {
  fail_expected(ErrorCode::kCorruptData, fmt::format("{}: {}", file_.name, key), expected, got);
}

std::string TokenizerJsonReader::merge_name() const {
  return fmt::format("model.merges[{}]", file_.merges.size());
}

void TokenizerJsonReader::refuse_nul(std::string_view text) const {
  if (const auto nul = text.find('\0'); nul != std::string_view::npos)
    corrupt(fmt::format("byte {}", nul), "JSON", "a NUL");
}

void TokenizerJsonReader::finish() const {
  if (!rest_.is_object()) corrupt("document", "an object", rest_.type_name());
  if (!vocab_seen_) corrupt("model.vocab", "an object of keys and ids", "nothing");
  if (!merges_seen_) corrupt("model.merges", "a list", "nothing");
}

bool TokenizerJsonReader::is_at(const char* model_key) const {
  return path_.size() == 2 && path_[1] == "model" && key_ == model_key && open_.back()->is_object();
}

TokenizerJsonReader::Json& TokenizerJsonReader::place(Json value) {
  if (open_.empty()) return rest_ = std::move(value);
  Json& parent = *open_.back();
  if (parent.is_array()) {
    parent.push_back(std::move(value));
    return parent.back();
  }
  if (parent.contains(key_)) corrupt(key_, "a key that occurs once", "the same key twice");
  return parent[key_] = std::move(value);
}

bool TokenizerJsonReader::scalar(Json value) {
  switch (where_) {
    case Where::kVocab:
      corrupt(fmt::format("model.vocab[{}]", Json(vocab_key_).dump(-1, ' ', true)),
              fmt::format("a whole number from 0 to {}", kMaxTokenId), value.dump());
    case Where::kMerges:
    case Where::kMergePair: corrupt(merge_name(), "\"left right\" or [left, right]", value.dump());
    case Where::kRest: break;
  }
  place(std::move(value));
  return true;
}

bool TokenizerJsonReader::number_unsigned(number_unsigned_t value) {
  if (where_ != Where::kVocab || value > static_cast<number_unsigned_t>(kMaxTokenId)) return scalar(value);
  const auto id = static_cast<TokenId>(value);
  const auto offset = static_cast<std::uint32_t>(file_.bytes.size());
  if (append_key_bytes(vocab_key_, file_.bytes)) {
    const auto length = static_cast<std::uint32_t>(file_.bytes.size() - offset);
    file_.vocab.push_back({{offset, length}, id});
  } else {
    foreign_keys_.emplace_back(vocab_key_, id);
  }
  return true;
}

bool TokenizerJsonReader::number_float(number_float_t value, const string_t& /*text*/) {
  return scalar(value);
}

TokenizerFile::Slice TokenizerJsonReader::append_merge_part(std::string_view key) {
  const auto offset = static_cast<std::uint32_t>(file_.bytes.size());
  if (!append_key_bytes(key, file_.bytes) || file_.bytes.size() == offset) {
    corrupt(merge_name(), "non-empty texts in the byte-level alphabet",
            Json(std::string(key)).dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  return {offset, static_cast<std::uint32_t>(file_.bytes.size() - offset)};
}

bool TokenizerJsonReader::string(string_t& value) {
  switch (where_) {
    case Where::kMerges: {
      // The alphabet has no space, so exactly one space separates the parts.
      const std::size_t space = value.find(' ');
      if (space == std::string::npos) corrupt(merge_name(), "\"left right\"", "a string without a space");
      const std::string_view text = value;
      const TokenizerFile::Slice left = append_merge_part(text.substr(0, space));
      file_.merges.push_back({left, append_merge_part(text.substr(space + 1))});
      return true;
    }
    case Where::kMergePair:
      if (pair_.size() == 2) corrupt(merge_name(), "two texts", "more than two");
      pair_.push_back(append_merge_part(value));
      return true;
    default: return scalar(value);
  }
}

bool TokenizerJsonReader::binary(binary_t& /*value*/) { return false; }  // not in JSON text

bool TokenizerJsonReader::start_object(std::size_t /*size*/) {
  if (where_ != Where::kRest) return scalar(Json::object());
  if (is_at("vocab")) {
    if (vocab_seen_) corrupt("model.vocab", "a key that occurs once", "the same key twice");
    vocab_seen_ = true;
    where_ = Where::kVocab;
    return true;
  }
  if (open_.size() >= kMaxDepth) corrupt(key_, fmt::format("nesting of at most {}", kMaxDepth), "more");
  path_.push_back(key_);
  open_.push_back(&place(Json::object()));
  return true;
}

bool TokenizerJsonReader::key(string_t& value) {
  (where_ == Where::kVocab ? vocab_key_ : key_).assign(value);
  return true;
}

bool TokenizerJsonReader::end_object() {
  if (where_ == Where::kVocab) {
    where_ = Where::kRest;
  } else {
    open_.pop_back();
    path_.pop_back();
  }
  return true;
}

bool TokenizerJsonReader::start_array(std::size_t /*size*/) {
  if (where_ == Where::kMerges) {
    where_ = Where::kMergePair;
    pair_.clear();
    return true;
  }
  if (where_ != Where::kRest) return scalar(Json::array());
  if (is_at("merges")) {
    if (merges_seen_) corrupt("model.merges", "a key that occurs once", "the same key twice");
    merges_seen_ = true;
    where_ = Where::kMerges;
    return true;
  }
  if (open_.size() >= kMaxDepth) corrupt(key_, fmt::format("nesting of at most {}", kMaxDepth), "more");
  path_.push_back(key_);
  open_.push_back(&place(Json::array()));
  return true;
}

bool TokenizerJsonReader::end_array() {
  if (where_ == Where::kMergePair) {
    if (pair_.size() != 2) corrupt(merge_name(), "two texts", fmt::format("{}", pair_.size()));
    file_.merges.push_back({pair_[0], pair_[1]});
    where_ = Where::kMerges;
  } else if (where_ == Where::kMerges) {
    where_ = Where::kRest;
  } else {
    open_.pop_back();
    path_.pop_back();
  }
  return true;
}

bool TokenizerJsonReader::parse_error(std::size_t position, const std::string& /*last_token*/,
                                      const nlohmann::detail::exception& /*error*/) {
  corrupt(fmt::format("byte {}", position), "JSON", "a syntax error");
}

}  // namespace

nlohmann::json read_tokenizer_json(std::string_view text, TokenizerFile& file, ForeignKeys& foreign_keys) {
  TokenizerJsonReader reader(file);
  reader.refuse_nul(text);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);  // the reader throws on a syntax error
  reader.finish();
  foreign_keys = std::move(reader.foreign_keys());
  return std::move(reader.rest());
}

}  // namespace mererun
