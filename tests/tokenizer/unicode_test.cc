// UTF-8 stepping, NFC and the added-token matcher: the parts below the tokenizer that have no ids.

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "demo_tokenizer.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/utf8.h"

namespace mererun {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(bytes, out);
  return out;
}

// The table of The Unicode Standard 15, 3.9 (tables 3-8 to 3-11).
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                  "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                  "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF"
                  "A\x80\xBF"
                  "B"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                  "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    append_utf8(c, text);
    const Utf8Step step = utf8_step(text, 0);
    ASSERT_EQ(step.kind, Utf8Kind::kValid);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(step.code_point, c);
    for (std::size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(utf8_step(text.substr(0, n), 0).kind, Utf8Kind::kIncomplete);
    }
  }
}

TEST(Utf8, ValidPrefixStopsAtTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_prefix("abcdefghij\xFFklmnopqrst"), 10u);
  EXPECT_EQ(valid_utf8_prefix("漢字\xE6"), 6u);
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
}

TEST(ByteAlphabet, MapsTheShiftedBytes) {
  std::string out;
  EXPECT_TRUE(append_key_bytes("\u0120a\u010a\u0100\u0143\u00ff", out));
  EXPECT_EQ(out, std::string(" a\n\0\xAD\xFF", 6));
  EXPECT_FALSE(append_key_bytes("a b", out));
  EXPECT_FALSE(append_key_bytes("\u0144", out));
  EXPECT_FALSE(append_key_bytes("\u00ad", out));
  EXPECT_EQ(out.size(), 6u);
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string copy(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
  std::free(result);
  return copy;
}

std::string nfc(const std::string& text) {
  std::string storage;
  return std::string(normalize_nfc(text, storage));
}

TEST(NormalizeNfc, ComposesOrdersAndLeavesExclusions) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");
}

TEST(NormalizeNfc, EveryCodePointAloneAndBetweenOthersEqualsUtf8proc) {
  for (char32_t c = 1; c < 0x31000; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string one;
    append_utf8(c, one);
    ASSERT_EQ(nfc(one), utf8proc_nfc(one)) << std::hex << static_cast<std::uint32_t>(c);
    const std::string between = "\u1100" + one + "\u0301x\u1161" + one;
    ASSERT_EQ(nfc(between), utf8proc_nfc(between)) << std::hex << static_cast<std::uint32_t>(c);
  }
}

TEST(NormalizeNfc, RandomTextsEqualUtf8proc) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = testing::random_text(random, 1 + i % 30);
    ASSERT_EQ(nfc(text), utf8proc_nfc(text)) << text;
  }
}

TEST(NormalizeNfc, NormalizedTextIsNotCopied) {
  const std::string text = "caf\u00e9 漢字 привет \uac01 😀";
  std::string storage;
  EXPECT_EQ(normalize_nfc(text, storage).data(), text.data());
}

std::vector<AddedToken> tokens(std::initializer_list<const char*> contents) {
  std::vector<AddedToken> list;
  for (const char* content : contents) list.push_back({content, static_cast<TokenId>(list.size()), true});
  return list;
}

TEST(AddedTokenMatcher, LeftmostThenLongest) {
  const AddedTokenMatcher matcher(tokens({"<a", "<a>", "a>b", "<a><b>c"}));
  const auto first = [&](std::string_view text, std::size_t pos) { return matcher.find(text, pos); };
  ASSERT_TRUE(first("x<a>b", 0));
  EXPECT_EQ(first("x<a>b", 0)->id, 1);
  EXPECT_EQ(first("x<a>b", 0)->begin, 1u);
  EXPECT_EQ(first("x<a>b", 0)->end, 4u);
  EXPECT_EQ(first("x<a>b", 2)->id, 2);
  EXPECT_EQ(first("<a><b>d", 0)->id, 1);  // the longer one fails at its last character
  EXPECT_EQ(first("<a><b>c", 0)->id, 3);
  EXPECT_FALSE(first("x>b", 0));
  EXPECT_FALSE(first("", 0));
}

}  // namespace
}  // namespace mererun
