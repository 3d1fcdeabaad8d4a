#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "demo_tokenizer.h"

namespace mererun {
namespace {

std::vector<std::string> pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::size_t> ends;
  pre_tokenizer.split(text, ends);
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return result;
}

using Pieces = std::vector<std::string>;

TEST(QwenPreTokenizer, FollowsThePattern) {
  const auto scanner = make_qwen_pre_tokenizer();
  EXPECT_EQ(pieces(*scanner, ""), Pieces{});
  EXPECT_EQ(pieces(*scanner, "it's"), (Pieces{"it", "'s"}));
  EXPECT_EQ(pieces(*scanner, "WE'RElate 'tis"), (Pieces{"WE", "'RE", "late", " '", "tis"}));
  EXPECT_EQ(pieces(*scanner, "x 123"), (Pieces{"x", " ", "1", "2", "3"}));
  EXPECT_EQ(pieces(*scanner, "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces(*scanner, "a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(pieces(*scanner, "a();\r\n\r\n  "), (Pieces{"a", "();\r\n\r\n", "  "}));
  EXPECT_EQ(pieces(*scanner, "(word) [x"), (Pieces{"(word", ")", " [", "x"}));
  EXPECT_EQ(pieces(*scanner, "สวัส ดี"), (Pieces{"สวัส", " ดี"}));
  EXPECT_EQ(pieces(*scanner, "\u0301a \u0301"), (Pieces{"\u0301a", " \u0301"}));
  EXPECT_EQ(pieces(*scanner, "x\u180e y"),
            (Pieces{"x", "\u180e", " y"}));  // not white space since Unicode 6.3
}

TEST(QwenPreTokenizer, IsChosenForItsPatternOnly) {
  const auto is_scanner = [](const std::string& pattern) {
    const auto made = make_pre_tokenizer(pattern, "test");
    const auto scanner = make_qwen_pre_tokenizer();
    return typeid(*made) == typeid(*scanner);
  };
  EXPECT_TRUE(is_scanner(std::string(kQwenPattern)));
  EXPECT_FALSE(is_scanner(std::string(kQwenPattern) + "|x"));
}

// The scanner and PCRE2 read their character classes from different tables. Code points assigned after
// PCRE2's Unicode version are the only ones they may disagree on; those stay out of the random texts.
bool classes_agree(char32_t c, const PreTokenizer& scanner, const PreTokenizer& regex) {
  std::string alone;
  append_utf8(c, alone);
  for (const std::string& text : {"a" + alone + "a", "." + alone + ".", alone + alone}) {
    if (pieces(scanner, text) != pieces(regex, text)) return false;
  }
  return true;
}

TEST(QwenPreTokenizer, ClassesEqualPcre2ForNearlyEveryCodePoint) {
  const auto scanner = make_qwen_pre_tokenizer();
  const auto regex = make_regex_pre_tokenizer(std::string(kQwenPattern), "test");
  int different = 0;
  int different_in_old_blocks = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c >= 0x32000 && c < 0xE0000) c = 0xE0000;  // unassigned planes
    if (classes_agree(c, *scanner, *regex)) continue;
    ++different;
    different_in_old_blocks += c < 0x0900;
  }
  EXPECT_EQ(different_in_old_blocks, 0);
  EXPECT_LT(different, 10000);  // CJK extension H alone has 4,192
}

TEST(QwenPreTokenizer, EqualsPcre2OnRandomTexts) {
  const auto scanner = make_qwen_pre_tokenizer();
  const auto regex = make_regex_pre_tokenizer(std::string(kQwenPattern), "test");
  std::mt19937 random(11);
  int compared = 0;
  for (int i = 0; i < 40000; ++i) {
    const std::string text = testing::random_text(random, 1 + i % 40);
    bool comparable = true;
    for (std::size_t pos = 0; pos < text.size() && comparable;) {
      const Utf8Step step = utf8_step(text, pos);
      comparable = step.code_point < 0x0900 || classes_agree(step.code_point, *scanner, *regex);
      pos += step.length;
    }
    if (!comparable) continue;
    ++compared;
    ASSERT_EQ(pieces(*scanner, text), pieces(*regex, text)) << text;
  }
  EXPECT_GT(compared, 35000);
}

TEST(RegexPreTokenizer, GapsBetweenMatchesArePieces) {
  const auto words = make_regex_pre_tokenizer(R"(\p{L}+)", "test");
  EXPECT_EQ(pieces(*words, "..ab1 é"), (Pieces{"..", "ab", "1 ", "é"}));
  const auto nothing = make_regex_pre_tokenizer("q*", "test");
  EXPECT_EQ(pieces(*nothing, "aé漢"), (Pieces{"aé漢"}));
  EXPECT_EQ(pieces(*nothing, "aqqé"), (Pieces{"a", "qq", "é"}));
}

TEST(RegexPreTokenizer, ServesOtherPublishedPatterns) {
  const auto groups_of_three = make_regex_pre_tokenizer(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      "test");
  EXPECT_EQ(pieces(*groups_of_three, "12345 it's"), (Pieces{"123", "45", " it", "'s"}));
}

TEST(RegexPreTokenizer, WhiteSpaceIsTheUnicodePropertyInsideAndOutsideClasses) {
  const auto outside = make_regex_pre_tokenizer(R"(\s+|\S+)", "test");
  EXPECT_EQ(pieces(*outside, "a\u180e\u3000\u0085b"), (Pieces{"a\u180e", "\u3000\u0085", "b"}));
  const auto inside = make_regex_pre_tokenizer(R"([\s]+|[^\s]+)", "test");
  EXPECT_EQ(pieces(*inside, "a\u180e\u3000\u0085b"), (Pieces{"a\u180e", "\u3000\u0085", "b"}));
  const auto negated = make_regex_pre_tokenizer(R"([^\S]+|[\S]+)", "test");
  EXPECT_EQ(pieces(*negated, "a\u180e\u3000\u0085b"), (Pieces{"a\u180e", "\u3000\u0085", "b"}));
}

ErrorCode refusal(const std::string& pattern) {
  try {
    make_regex_pre_tokenizer(pattern, "file: key");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("file: key"), 0u) << error.what();
    return error.code();
  }
  ADD_FAILURE() << pattern << " was accepted";
  return ErrorCode::kInternal;
}

TEST(RegexPreTokenizer, RefusesWhatTheTwoEnginesReadDifferently) {
  for (const char* pattern :
       {R"(\w+)", R"(\h)", R"(\bx)", "^a", "a$", ".", "[[:alpha:]]", "[a&&b]", "(?m:a)", "(?<n>a)", "a{,3}",
        "a{2}+", R"(\pL)", "[]a]", R"(\)", "(*ACCEPT)", R"((a)\1)"}) {
    EXPECT_EQ(refusal(pattern), ErrorCode::kUnsupported) << pattern;
  }
  for (const char* pattern : {"(a", "[a", "a)", "*a", R"(\p{NoSuchProperty})"}) {
    EXPECT_EQ(refusal(pattern), ErrorCode::kCorruptData) << pattern;
  }
}

}  // namespace
}  // namespace mererun
