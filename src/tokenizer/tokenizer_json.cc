#include "tokenizer/tokenizer_json.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer_json_reader.h"

namespace mererun {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxAddedTokenBytes = 512;  // keeps matching linear in the text
constexpr std::size_t kMaxShown = 60;             // bytes of a foreign value shown in a message

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

/// Looks things up in the small part of the file and words the errors.
class Checker {
 public:
  Checker(const Json& root, const std::string& name) : root_(root), name_(name) {}

  [[noreturn]] void corrupt(std::string_view key, std::string_view expected, std::string_view got) const {
    fail_expected(ErrorCode::kCorruptData, name_ + ": " + std::string(key), expected, got);
  }
  [[noreturn]] void unsupported(std::string_view key, std::string_view expected, const Json& got) const {
    fail_expected(ErrorCode::kUnsupported, name_ + ": " + std::string(key), expected, shown(got));
  }

  /// The member of `object`, or null when it is absent.
  static const Json& member(const Json& object, const char* key) {
    static const Json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
  }

  void require(const Json& value, const Json& wanted, std::string_view key) const {
    if (value != wanted) unsupported(key, shown(wanted), value);
  }
  /// The value must be absent, null or equal to one of `harmless`.
  void require_unset(const Json& value, std::initializer_list<Json> harmless, std::string_view key) const {
    if (value.is_null()) return;
    for (const Json& h : harmless) {
      if (value == h) return;
    }
    unsupported(key, harmless.size() == 0 ? "null" : shown(*harmless.begin()) + " or null", value);
  }

  void check_model() const;
  bool wants_nfc() const;
  std::string split_pattern() const;
  std::vector<AddedToken> added_tokens() const;

 private:
  std::string string_member(const Json& object, const char* key, const std::string& where) const;
  bool flag(const Json& object, const char* key, const std::string& where) const;

  const Json& root_;
  const std::string& name_;
};

void Checker::check_model() const {
  const Json& model = member(root_, "model");
  if (!model.is_object()) corrupt("model", "an object", shown(model));
  require(member(model, "type"), "BPE", "model.type");
  require_unset(member(model, "dropout"), {0.0}, "model.dropout");
  require_unset(member(model, "unk_token"), {}, "model.unk_token");
  require_unset(member(model, "continuing_subword_prefix"), {""}, "model.continuing_subword_prefix");
  require_unset(member(model, "end_of_word_suffix"), {""}, "model.end_of_word_suffix");
  require_unset(member(model, "byte_fallback"), {false}, "model.byte_fallback");
  require_unset(member(model, "ignore_merges"), {false}, "model.ignore_merges");
  require(member(member(root_, "decoder"), "type"), "ByteLevel", "decoder.type");
  const Json& post = member(root_, "post_processor");
  if (!post.is_null()) require(member(post, "type"), "ByteLevel", "post_processor.type");
}

bool Checker::wants_nfc() const {
  const Json& normalizer = member(root_, "normalizer");
  if (normalizer.is_null()) return false;
  const Json& type = member(normalizer, "type");
  if (type == "NFC") return true;
  const Json& parts = member(normalizer, "normalizers");
  if (type != "Sequence" || !parts.is_array()) {
    unsupported("normalizer", "null, NFC or a Sequence of NFC", normalizer);
  }
  for (const Json& part : parts) require(member(part, "type"), "NFC", "normalizer.normalizers[].type");
  return !parts.empty();
}

std::string Checker::split_pattern() const {
  const Json& pre = member(root_, "pre_tokenizer");
  require(member(pre, "type"), "Sequence", "pre_tokenizer.type");
  const Json& parts = member(pre, "pretokenizers");
  if (!parts.is_array() || parts.size() != 2) {
    unsupported("pre_tokenizer.pretokenizers", "[Split, ByteLevel]", parts);
  }
  const Json& split = parts[0];
  const Json& byte_level = parts[1];
  require(member(split, "type"), "Split", "pre_tokenizer.pretokenizers[0].type");
  require(member(split, "behavior"), "Isolated", "pre_tokenizer.pretokenizers[0].behavior");
  require_unset(member(split, "invert"), {false}, "pre_tokenizer.pretokenizers[0].invert");
  require(member(byte_level, "type"), "ByteLevel", "pre_tokenizer.pretokenizers[1].type");
  require(member(byte_level, "add_prefix_space"), false, "pre_tokenizer.pretokenizers[1].add_prefix_space");
  require(member(byte_level, "use_regex"), false, "pre_tokenizer.pretokenizers[1].use_regex");
  const Json& regex = member(member(split, "pattern"), "Regex");
  if (!regex.is_string() || regex.get_ref<const std::string&>().empty()) {
    unsupported("pre_tokenizer.pretokenizers[0].pattern.Regex", "a non-empty string", regex);
  }
  return regex.get<std::string>();
}

std::string Checker::string_member(const Json& object, const char* key, const std::string& where) const {
  const Json& value = member(object, key);
  if (!value.is_string()) corrupt(where + "." + key, "a string", shown(value));
  return value.get<std::string>();
}

bool Checker::flag(const Json& object, const char* key, const std::string& where) const {
  const Json& value = member(object, key);
  if (value.is_null()) return false;
  if (!value.is_boolean()) corrupt(where + "." + key, "true or false", shown(value));
  return value.get<bool>();
}

std::vector<AddedToken> Checker::added_tokens() const {
  const Json& list = member(root_, "added_tokens");
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) corrupt("added_tokens", "a list", shown(list));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& entry = list[i];
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken token{
        .content = string_member(entry, "content", where), .id = 0, .special = flag(entry, "special", where)};
    if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
      corrupt(where + ".content", fmt::format("1 to {} bytes", kMaxAddedTokenBytes),
              fmt::format("{} bytes", token.content.size()));
    }
    const Json& id = member(entry, "id");
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kMaxTokenId) {
      corrupt(where + ".id", fmt::format("a whole number from 0 to {}", kMaxTokenId), shown(id));
    }
    token.id = id.get<TokenId>();
    for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"}) {
      if (flag(entry, key, where)) unsupported(where + "." + key, "false", true);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A vocabulary key outside the byte alphabet can only be the copy of an added token (a control text with,
// say, a space in it): BPE never produces it.
void check_foreign_keys(const ForeignKeys& keys, const TokenizerFile& file) {
  for (const auto& [key, id] : keys) {
    bool is_added = false;
    for (const AddedToken& token : file.added_tokens) is_added |= token.content == key && token.id == id;
    if (!is_added) {
      fail_expected(ErrorCode::kUnsupported, file.name + ": model.vocab", "keys in the byte-level alphabet",
                    shown(key));
    }
  }
}

}  // namespace

TokenizerFile parse_tokenizer_json(std::string_view json, std::string name) {
  if (json.size() > std::numeric_limits<std::uint32_t>::max() / 2) {
    fail_expected(ErrorCode::kUnsupported, name, "less than 2 GiB", fmt::format("{} bytes", json.size()));
  }
  TokenizerFile file;
  file.name = std::move(name);
  ForeignKeys foreign_keys;
  const Json rest = read_tokenizer_json(json, file, foreign_keys);
  const Checker checker(rest, file.name);
  checker.check_model();
  file.normalize_nfc = checker.wants_nfc();
  file.split_pattern = checker.split_pattern();
  file.added_tokens = checker.added_tokens();
  check_foreign_keys(foreign_keys, file);
  return file;
}

}  // namespace mererun
