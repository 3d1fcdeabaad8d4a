#include "tests/grammar/text_probe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace mererun::testing {

std::shared_ptr<const GrammarVocabulary> byte_vocabulary() {
  static const std::shared_ptr<const GrammarVocabulary> kVocabulary = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
    std::vector<GrammarVocabulary::Token> tokens;
    for (std::size_t byte = 0; byte < 256; ++byte)
      tokens.push_back({std::string_view(bytes).substr(byte, 1), false});
    for (const char* added : {"<tool_call>", "</tool_call>", "<think>", "</think>", "<|end|>"})
      tokens.push_back({added, true});
    return std::make_shared<const GrammarVocabulary>(tokens, std::vector<TokenId>{kEosToken});
  }();
  return kVocabulary;
}

std::shared_ptr<const GrammarVocabulary> demo_vocabulary() {
  static const std::shared_ptr<const GrammarVocabulary> kVocabulary = [] {
    const auto tokenizer = Tokenizer::load(MERERUN_SOURCE_DIR "/models/demo-dense-4bit/tokenizer.json");
    return GrammarVocabulary::build(*tokenizer, {*tokenizer->find_token("<|im_end|>")});
  }();
  return kVocabulary;
}

namespace {

std::unique_ptr<TokenConstraint> after(const TokenConstraint& constraint, std::string_view text) {
  auto copy = constraint.clone();
  for (std::size_t i = 0; i < text.size(); ++i) {
    TokenId id = static_cast<unsigned char>(text[i]);
    // Markup of calls is one token.
    for (const auto& [tag, token] :
         {std::pair("<tool_call>", kToolCallToken), std::pair("</tool_call>", kEndToolCallToken)}) {
      if (!text.substr(i).starts_with(tag)) continue;
      id = token;
      i += std::string_view(tag).size() - 1;
    }
    const TokenMask* mask = copy->mask();
    if (mask != nullptr && !mask->allows(id)) return nullptr;
    copy->accept(id);
  }
  return copy;
}

}  // namespace

bool accepts_beginning(const TokenConstraint& constraint, std::string_view text) {
  return after(constraint, text) != nullptr;
}

bool accepts(const TokenConstraint& constraint, std::string_view text) {
  const auto copy = after(constraint, text);
  if (!copy) return false;
  const TokenMask* mask = copy->mask();
  return mask == nullptr || mask->allows(kEosToken);
}

std::string refusal_of(const std::function<std::unique_ptr<TokenConstraint>()>& compile) {
  try {
    compile();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

}  // namespace mererun::testing
