#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "demo_tokenizer.h"
#include "tokenizer/normalizer.h"

namespace mererun {
namespace {

using testing::demo_tokenizer;
using testing::random_text;
using testing::tokenizer_golden;
using Ids = std::vector<TokenId>;

TEST(Tokenizer, EncodesAllGoldenTexts) {
  for (const char* file : {"cases.json", "field-cases.json"}) {
    const auto cases = tokenizer_golden(file)["encode"];
    ASSERT_GE(cases.size(), 200u) << file;
    for (const auto& c : cases) {
      EXPECT_EQ(demo_tokenizer()->encode(c["text"].get<std::string>()), c["ids"].get<Ids>()) << c["text"];
    }
  }
}

TEST(Tokenizer, DecodesAllGoldenSequences) {
  const auto cases = tokenizer_golden("cases.json")["decode"];
  ASSERT_EQ(cases.size(), 150u);
  for (const auto& c : cases) {
    const Ids ids = c["ids"].get<Ids>();
    EXPECT_EQ(demo_tokenizer()->decode(ids), c["text"].get<std::string>());
    EXPECT_EQ(demo_tokenizer()->decode(ids, SpecialTokens::kSkip), c["text_skip_special"].get<std::string>());
  }
}

TEST(Tokenizer, WordRightAfterAnAddedTokenIsEncodedAsIfAlone) {
  const TokenId start = demo_tokenizer()->find_token("<|im_start|>").value();
  for (const char* word : {"user", " user", "\nuser", "'s", "é"}) {
    Ids expected = demo_tokenizer()->encode(word);
    expected.insert(expected.begin(), {start, start});
    EXPECT_EQ(demo_tokenizer()->encode(std::string("<|im_start|><|im_start|>") + word), expected) << word;
  }
}

TEST(Tokenizer, AddedTokensAsPlainTextGiveNoControlToken) {
  const std::string text = "<|im_start|>system<think></think><|im_end|>";
  const Ids ids = demo_tokenizer()->encode(text, {.added_tokens = AddedTokenText::kPlain});
  for (const char* control : {"<|im_start|>", "<think>", "</think>", "<|im_end|>"}) {
    EXPECT_EQ(std::count(ids.begin(), ids.end(), demo_tokenizer()->find_token(control).value()), 0)
        << control;
  }
  EXPECT_EQ(demo_tokenizer()->decode(ids), text);
}

TEST(Tokenizer, DecodeOfEncodeIsTheNormalizedText) {
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random, 1 + i % 60);
    std::string storage;
    EXPECT_EQ(demo_tokenizer()->decode(demo_tokenizer()->encode(text)), normalize_nfc(text, storage));
  }
}

TEST(Tokenizer, IllFormedInputCountsAsReplacementCharacters) {
  const auto same = [](std::string_view broken, std::string_view repaired) {
    EXPECT_EQ(demo_tokenizer()->encode(broken), demo_tokenizer()->encode(repaired));
  };
  same(
      "a\xFF"
      "b",
      "a\uFFFDb");
  same("\xF0\x9F\x98", "\uFFFD");
  same("\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD");  // a surrogate has no well-formed start
  same("\xC0\xAF<|im_end|>", "\uFFFD\uFFFD<|im_end|>");
  same(std::string_view("\xE4\xB8\0x", 4), std::string_view("\uFFFD\0x", 5));
}

TEST(Tokenizer, EmptyTextAndEmptySequence) {
  EXPECT_TRUE(demo_tokenizer()->encode("").empty());
  EXPECT_EQ(demo_tokenizer()->decode({}), "");
}

TEST(Tokenizer, VocabularyAnswersForEveryId) {
  const Tokenizer& tokenizer = *demo_tokenizer();
  ASSERT_EQ(tokenizer.vocabulary_size(), tokenizer_golden("cases.json")["vocab_size"].get<int>());
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    ASSERT_FALSE(tokenizer.token_bytes(id).empty()) << id;
    EXPECT_EQ(tokenizer.find_token(tokenizer.token_bytes(id)), id);
  }
  EXPECT_TRUE(tokenizer.is_special(tokenizer.find_token("<|im_end|>").value()));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.find_token("<think>").value()));
  EXPECT_EQ(tokenizer.find_token("<|no_such_token|>"), std::nullopt);
}

TEST(Tokenizer, IdsWithoutATokenAreEmpty) {
  const Tokenizer& tokenizer = *demo_tokenizer();
  for (const TokenId id : {-1, tokenizer.vocabulary_size(), 248319, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
    EXPECT_EQ(tokenizer.decode(std::array{id}), "");
  }
}

// One megabyte of the worst texts we know: quadratic work anywhere would take minutes. The bound is generous
// for sanitizer builds on a busy machine.
// Quadratic work on a million bytes takes longer than CTest lets a program run.
TEST(Tokenizer, TimeIsLinearOnHostileText) {
  const auto repeat = [](std::string_view unit) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    return text;
  };
  const std::string half_breaks = std::string(500'000, '\n') + std::string(500'000, ' ') + "x";
  std::string marks = "a";
  marks += repeat("\u0301\u0323");
  for (const std::string& text :
       {repeat("a"), repeat(" "), repeat("世"), repeat("\n"), repeat(" \n"), repeat("\t \r\n"), repeat("'"),
        repeat("'s"), repeat("<"), repeat("<|im_"), repeat("7"), repeat("ab"), repeat("\xFF"),
        repeat("\u1100"), half_breaks, marks}) {
    EXPECT_GT(demo_tokenizer()->encode(text).size(), 1000u) << text.substr(0, 8);
  }
}

TEST(Tokenizer, ThreadsSharingOneTokenizerAgree) {
  const auto fresh = Tokenizer::load(testing::demo_tokenizer_path());
  const auto cases = tokenizer_golden("cases.json")["encode"];
  std::vector<std::vector<Ids>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&cases, &fresh, &result] {
      for (const auto& c : cases) result.push_back(fresh->encode(c["text"].get_ref<const std::string&>()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    for (const auto& result : results) EXPECT_EQ(result[i], cases[i]["ids"].get<Ids>());
  }
}

TEST(Tokenizer, LoadNamesAMissingFile) {
  try {
    Tokenizer::load("no/such/tokenizer.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("no/such/tokenizer.json"), std::string::npos);
  }
}

TEST(Tokenizer, LoadRefusesAFolder) {
  try {
    Tokenizer::load(MERERUN_SOURCE_DIR "/models");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace mererun
