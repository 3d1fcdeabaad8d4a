#include "grammar/grammar_vocabulary.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace mererun {
namespace {

constexpr char kMarkerLead = static_cast<char>(0xFF);
constexpr std::size_t kLongestToken = 256;  // bounds the memory of slices; longer tokens are never needed

std::string marker(std::size_t index) {
  return {kMarkerLead, static_cast<char>(index >> 8 & 0xFF), static_cast<char>(index & 0xFF)};
}

bool is_text(std::string_view bytes) {
  return !bytes.empty() && bytes.size() <= kLongestToken &&
         std::none_of(bytes.begin(), bytes.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0xFE; });
}

bool is_in(TextSlice slice, char32_t code_point) {
  if (slice == TextSlice::kMarkupText) return code_point != '<' && code_point != '\n';
  if (slice == TextSlice::kJsonMarkupString && code_point == '<') return false;
  return code_point >= 0x20 && code_point != '"' && code_point != '\\';
}

/// Characters of a token that lies in the slice; -1 for another.
int characters_in(TextSlice slice, std::string_view bytes) {
  int count = 0;
  for (std::size_t i = 0; i < bytes.size(); ++count) {
    const Utf8Step step = utf8_step(bytes, i);
    if (step.kind != Utf8Kind::kValid || !is_in(slice, step.code_point)) return -1;
    i += step.length;
  }
  return count;
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(std::span<const Token> tokens, std::vector<TokenId> eos_ids)
    : is_usable_(tokens.size(), false), eos_ids_(std::move(eos_ids)) {
  std::erase_if(eos_ids_,
                [&](TokenId id) { return id < 0 || static_cast<std::size_t>(id) >= tokens.size(); });
  std::size_t total = 0;
  for (const Token& token : tokens) total += token.bytes.size();
  arena_.reserve(total);  // views into it stay
  texts_.reserve(tokens.size());
  std::unordered_set<std::string_view> seen;
  seen.reserve(tokens.size());
  std::vector<TokenTrie::Entry> entries;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::size_t begin = arena_.size();
    arena_.append(tokens[id].bytes);
    texts_.push_back(std::string_view(arena_).substr(begin));
    if (std::find(eos_ids_.begin(), eos_ids_.end(), static_cast<TokenId>(id)) != eos_ids_.end()) continue;
    std::string_view bytes = texts_.back();
    if (tokens[id].is_added) {
      bytes = markers_.emplace(static_cast<TokenId>(id), marker(markers_.size())).first->second;
    } else if (!is_text(bytes) || !seen.insert(bytes).second) {
      continue;
    }
    is_usable_[id] = true;
    entries.emplace_back(bytes, static_cast<TokenId>(id));
  }
  MERERUN_CHECK(markers_.size() <= 0x10000, "a marker for every added token");
  trie_ = TokenTrie(std::move(entries));
  for (int slice = 1; slice < kNumTextSlices; ++slice) build_slice(static_cast<TextSlice>(slice));
}

std::shared_ptr<const GrammarVocabulary> GrammarVocabulary::build(const Tokenizer& tokenizer,
                                                                  std::vector<TokenId> eos_ids) {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id)
    tokens.push_back({tokenizer.token_bytes(id), tokenizer.is_added(id)});
  return std::make_shared<const GrammarVocabulary>(tokens, std::move(eos_ids));
}

void GrammarVocabulary::build_slice(TextSlice slice) {
  std::vector<std::vector<TokenId>> by_count(1);
  std::vector<TokenTrie::Entry> rest;
  for (TokenId id = 0; id < size(); ++id) {
    if (!is_usable_[static_cast<std::size_t>(id)] || markers_.contains(id)) continue;
    const int count = characters_in(slice, text(id));
    if (count < 0) {
      rest.emplace_back(text(id), id);
      continue;
    }
    const auto index = static_cast<std::size_t>(count);
    if (by_count.size() <= index) by_count.resize(index + 1);
    by_count[index].push_back(id);
  }
  SliceTokens tokens{.up_to = {}, .rest = TokenTrie(std::move(rest))};
  TokenMask mask(size());
  for (const std::vector<TokenId>& ids : by_count) {
    for (const TokenId id : ids) mask.allow(id);
    tokens.up_to.push_back(mask);
  }
  slices_.push_back(std::move(tokens));
}

std::string_view GrammarVocabulary::grammar_bytes(TokenId id) const {
  if (id < 0 || id >= size() || !is_usable_[static_cast<std::size_t>(id)]) return {};
  const auto marked = markers_.find(id);
  return marked != markers_.end() ? std::string_view(marked->second) : text(id);
}

std::optional<std::string> GrammarVocabulary::marker_of(std::string_view added) const {
  for (const auto& [id, bytes] : markers_)
    if (text(id) == added) return bytes;
  return std::nullopt;
}

}  // namespace mererun
