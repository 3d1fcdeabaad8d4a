#include "tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "demo_tokenizer.h"

namespace mererun {
namespace {

using testing::demo_tokenizer;
using Ids = std::vector<TokenId>;

TokenId byte_token(unsigned char byte) {
  const char c = static_cast<char>(byte);
  return demo_tokenizer()->find_token(std::string_view(&c, 1)).value();
}

Ids byte_tokens(std::string_view bytes) {
  Ids ids;
  for (const char c : bytes) ids.push_back(byte_token(static_cast<unsigned char>(c)));
  return ids;
}

TEST(Detokenizer, ACharacterSplitOverTokensIsReleasedWhole) {
  for (const std::string text : {"漢", "é", "😀"}) {
    Detokenizer detokenizer(demo_tokenizer());
    const Ids ids = byte_tokens(text);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      EXPECT_EQ(detokenizer.append(ids[i]), "");
      EXPECT_EQ(detokenizer.pending_bytes(), text.substr(0, i + 1));
    }
    EXPECT_EQ(detokenizer.append(ids.back()), text);
    EXPECT_EQ(detokenizer.flush(), "");
  }
}

TEST(Detokenizer, HalvesOfAnEmojiDoNotBecomeReplacementCharacters) {
  Detokenizer detokenizer(demo_tokenizer());
  std::string text;
  detokenizer.append(byte_tokens("\xF0\x9F"), text);
  EXPECT_EQ(text, "");
  detokenizer.append(byte_tokens("\x8C\x8D"), text);
  EXPECT_EQ(text, "🌍");
}

TEST(Detokenizer, ALoneLeadByteIsReplacedAtTheEnd) {
  Detokenizer detokenizer(demo_tokenizer());
  EXPECT_EQ(detokenizer.append(byte_token(0xF0)), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(detokenizer.append(byte_token('a')), "a");
}

TEST(Detokenizer, AWordAfterAnUnfinishedCharacterLosesNothing) {
  Detokenizer detokenizer(demo_tokenizer());
  EXPECT_EQ(detokenizer.append(byte_token(0xE4)), "");
  EXPECT_EQ(detokenizer.append(byte_token(0xB8)), "");
  EXPECT_EQ(detokenizer.append(demo_tokenizer()->find_token(" the").value()), "\uFFFD the");
}

TEST(Detokenizer, ALeadByteAfterAnUnfinishedCharacterWaitsOnItsOwn) {
  Detokenizer detokenizer(demo_tokenizer());
  EXPECT_EQ(detokenizer.append(byte_token(0xF0)), "");
  EXPECT_EQ(detokenizer.append(byte_token(0xC3)), "\uFFFD");
  EXPECT_EQ(detokenizer.append(byte_token(0xA9)), "é");
}

TEST(Detokenizer, SpecialTokensAreKeptOrSkipped) {
  const TokenId end = demo_tokenizer()->find_token("<|im_end|>").value();
  const TokenId think = demo_tokenizer()->find_token("<think>").value();
  Detokenizer keep(demo_tokenizer());
  EXPECT_EQ(keep.append(end), "<|im_end|>");
  Detokenizer skip(demo_tokenizer(), SpecialTokens::kSkip);
  EXPECT_EQ(skip.append(end), "");
  EXPECT_EQ(skip.append(think), "<think>");
}

TEST(Detokenizer, IdsWithoutATokenReleaseNothing) {
  Detokenizer detokenizer(demo_tokenizer());
  EXPECT_EQ(detokenizer.append(-1), "");
  EXPECT_EQ(detokenizer.append(1 << 30), "");
  EXPECT_EQ(detokenizer.flush(), "");
}

// Sequences of byte tokens, words and control tokens; every cut must give the text of the whole.
TEST(Detokenizer, EveryChunkingGivesTheTextOfTheWhole) {
  std::mt19937 random(23);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  const Tokenizer& tokenizer = *demo_tokenizer();
  for (int round = 0; round < 3000; ++round) {
    Ids ids;
    for (int i = below(24); i >= 0; --i) {
      if (below(3) > 0) {
        ids.push_back(byte_token(static_cast<unsigned char>(below(4) == 0 ? below(256) : 0x80 + below(128))));
      } else {
        ids.push_back(below(tokenizer.vocabulary_size() + 8));
      }
    }
    if (below(3) == 0) {
      const Ids character =
          byte_tokens(std::array{"漢", "😀", "é", "\u0e31"}[static_cast<std::size_t>(below(4))]);
      ids.insert(ids.begin() + below(static_cast<int>(ids.size())), character.begin(), character.end());
    }
    for (const SpecialTokens special : {SpecialTokens::kKeep, SpecialTokens::kSkip}) {
      Detokenizer detokenizer(demo_tokenizer(), special);
      std::string text;
      for (std::size_t begin = 0; begin < ids.size();) {
        const std::size_t length =
            std::min<std::size_t>(static_cast<std::size_t>(below(4)), ids.size() - begin);
        std::string released;
        detokenizer.append(std::span(ids).subspan(begin, length), released);
        ASSERT_EQ(valid_utf8_prefix(released), released.size());
        ASSERT_LE(detokenizer.pending_bytes().size(), 3u);
        text += released;
        begin += length;
      }
      text += detokenizer.flush();
      ASSERT_EQ(text, tokenizer.decode(ids, special));
    }
  }
}

TEST(Detokenizer, StreamsTheGoldenSequencesTokenByToken) {
  const auto cases = testing::tokenizer_golden("cases.json")["decode"];
  ASSERT_EQ(cases.size(), 150u);
  for (const auto& c : cases) {
    Detokenizer detokenizer(demo_tokenizer(), SpecialTokens::kSkip);
    std::string text;
    for (const TokenId id : c["ids"].get<Ids>()) text += detokenizer.append(id);
    text += detokenizer.flush();
    EXPECT_EQ(text, c["text_skip_special"].get<std::string>());
  }
}

}  // namespace
}  // namespace mererun
