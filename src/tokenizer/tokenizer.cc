#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace mererun {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;  // positions inside a piece are 32-bit

using AddedById = std::unordered_map<TokenId, AddedToken>;

std::string read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fail_expected(ErrorCode::kNotFound, path.string(), "a tokenizer.json", "no such file");
  }
  std::ifstream file(path, std::ios::binary);
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!file || error) fail_expected(ErrorCode::kIo, path.string(), "a readable file", error.message());
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size) {
    fail_expected(ErrorCode::kIo, path.string(), fmt::format("{} bytes", size),
                  fmt::format("{} bytes", file.gcount()));
  }
  return text;
}

// Added tokens by id. Some files list them in the vocabulary too; then text and id must agree.
AddedById index_added_tokens(const std::vector<AddedToken>& tokens, const Bpe& bpe, const std::string& name) {
  AddedById by_id;
  std::unordered_map<std::string_view, TokenId> by_text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const AddedToken& token = tokens[i];
    const auto corrupt = [&](std::string_view expected, const std::string& got) {
      fail_expected(ErrorCode::kCorruptData, fmt::format("{}: added_tokens[{}]", name, i), expected, got);
    };
    const std::optional<TokenId> in_vocab = bpe.find(token.content);
    const std::string_view vocab_text = bpe.token_bytes(token.id);
    if (in_vocab && *in_vocab != token.id) {
      corrupt(fmt::format("id {}, as in model.vocab", *in_vocab), fmt::format("id {}", token.id));
    }
    if (!vocab_text.empty() && vocab_text != token.content) {
      corrupt("an id that model.vocab does not use", fmt::format("id {}", token.id));
    }
    if (!by_id.emplace(token.id, token).second) {
      corrupt("ids that occur once", fmt::format("id {} twice", token.id));
    }
    if (!by_text.emplace(token.content, token.id).second) {
      corrupt("contents that occur once", fmt::format("\"{}\" twice", token.content));
    }
  }
  return by_id;
}

}  // namespace

struct Tokenizer::Parts {
  Bpe bpe;
  AddedTokenMatcher matcher;
  AddedById added;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  bool normalize_nfc;
  int vocabulary_size;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return from_json(read_file(tokenizer_json), tokenizer_json.string());
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json, const std::string& name) {
  TokenizerFile file = parse_tokenizer_json(json, name);
  const std::vector<AddedToken> added = std::move(file.added_tokens);
  const bool normalize = file.normalize_nfc;
  auto pre_tokenizer =
      make_pre_tokenizer(file.split_pattern, name + ": pre_tokenizer.pretokenizers[0].pattern.Regex");
  Bpe bpe(std::move(file));
  AddedById by_id = index_added_tokens(added, bpe, name);
  int size = bpe.id_end();
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  auto parts = std::make_unique<const Parts>(Parts{.bpe = std::move(bpe),
                                                   .matcher = AddedTokenMatcher(added),
                                                   .added = std::move(by_id),
                                                   .pre_tokenizer = std::move(pre_tokenizer),
                                                   .normalize_nfc = normalize,
                                                   .vocabulary_size = size});
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    fail_expected(ErrorCode::kInvalidArgument, "text to encode",
                  fmt::format("at most {} bytes", kMaxTextBytes), fmt::format("{} bytes", text.size()));
  }
  std::string repaired;
  if (valid_utf8_prefix(text) != text.size()) {
    append_lossy_utf8(text, repaired);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4);
  std::size_t pos = 0;
  if (options.added_tokens == AddedTokenText::kToken) {
    while (const auto match = parts_->matcher.find(text, pos)) {
      encode_plain(text.substr(pos, match->begin - pos), ids);
      ids.push_back(match->id);
      pos = match->end;
    }
  }
  encode_plain(text.substr(pos), ids);
  return ids;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  std::string normalized;
  if (parts_->normalize_nfc) text = normalize_nfc(text, normalized);
  std::vector<std::size_t> ends;
  parts_->pre_tokenizer->split(text, ends);
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts_->bpe.encode_piece(text.substr(begin, end - begin), out);
    begin = end;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SpecialTokens special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (special == SpecialTokens::kSkip && is_special(id)) continue;
    bytes += token_bytes(id);
  }
  std::string text;
  append_lossy_utf8(bytes, text);
  return text;
}

int Tokenizer::vocabulary_size() const { return parts_->vocabulary_size; }

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto added = parts_->added.find(id);
  return added != parts_->added.end() ? std::string_view(added->second.content) : parts_->bpe.token_bytes(id);
}

bool Tokenizer::is_special(TokenId id) const {
  const auto added = parts_->added.find(id);
  return added != parts_->added.end() && added->second.special;
}

bool Tokenizer::is_added(TokenId id) const { return parts_->added.contains(id); }

std::optional<TokenId> Tokenizer::find_token(std::string_view text) const {
  for (const auto& [id, token] : parts_->added) {
    if (token.content == text) return id;
  }
  return parts_->bpe.find(text);
}

}  // namespace mererun
