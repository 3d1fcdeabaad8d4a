#include <gtest/gtest.h>

#include <string>

#include "grammar/compile.h"
#include "tests/grammar/text_probe.h"

namespace mererun::testing {
namespace {

std::unique_ptr<TokenConstraint> grammar(const std::string& text) {
  return compile_grammar(text, byte_vocabulary());
}

std::string error_of(const std::string& text) {
  return refusal_of([&] { return grammar(text); });
}

TEST(Gbnf, LiteralsClassesAndOperators) {
  const auto g = grammar(R"gbnf(
    # a comment
    root ::= greeting (", " name)? "!"+ | [0-9]{2,3}
    greeting ::= "hi" | "good \"day\"\n"
    name ::= [^,!\n]*
  )gbnf");
  for (const char* text : {"hi!", "hi, Ann!!", "good \"day\"\n!", "12", "123", "hi, Zoë 東京!", "hi, !"})
    EXPECT_TRUE(accepts(*g, text)) << text;
  for (const char* text : {"", "hi", "hi,Ann!", "1", "1234", "hi!,", "good day!", "hi, A,B!"})
    EXPECT_FALSE(accepts(*g, text)) << text;
  EXPECT_TRUE(accepts_beginning(*g, "good \"da"));
  EXPECT_FALSE(accepts_beginning(*g, "goods"));
}

TEST(Gbnf, RulesCallOneAnother) {
  const auto g = grammar(
      "root ::= sum\nsum ::= term ((\"+\" | \"-\") term)*\n"
      "term ::= [0-9]+ | \"(\" sum \")\"");
  for (const char* text : {"1", "1+2", "(1)", "((12-3)+4)-5", "1-(2+(3-(4)))"})
    EXPECT_TRUE(accepts(*g, text)) << text;
  for (const char* text : {"", "1+", "(1", "1)", "()", "((1)"}) EXPECT_FALSE(accepts(*g, text)) << text;
}

TEST(Gbnf, CallsThatCanBeEmpty) {
  const auto g = grammar("root ::= a b a \"x\"\na ::= \"1\"?\nb ::= a a | \"2\"*");
  for (const char* text : {"x", "1x", "11x", "111x", "1111x", "2x", "12221x"})
    EXPECT_TRUE(accepts(*g, text)) << text;
  for (const char* text : {"11111x", "2", "121"}) EXPECT_FALSE(accepts(*g, text)) << text;
}

TEST(Gbnf, CountedPartsThatCanBeEmpty) {
  const auto g = grammar("root ::= part{30,90} \".\"\npart ::= [a-c]* | \"xyz\"");
  EXPECT_TRUE(accepts(*g, "."));
  EXPECT_TRUE(accepts(*g, "abcxyz."));
  EXPECT_FALSE(accepts(*g, "abcxy."));
}

TEST(Gbnf, LargeCountsAreExact) {
  const auto g = grammar("root ::= \"<\" [a-zß]{1000,1002} \">\" (\"ab\" | \"c\"){70,71}");
  const auto text = [](int n, int m) {
    std::string result = "<";
    for (int i = 0; i < n; ++i) result += i % 2 ? "a" : "ß";
    result += ">";
    for (int i = 0; i < m; ++i) result += i % 3 ? "ab" : "c";
    return result;
  };
  for (const int n : {999, 1000, 1001, 1002, 1003})
    for (const int m : {69, 70, 71, 72})
      EXPECT_EQ(accepts(*g, text(n, m)), n >= 1000 && n <= 1002 && (m == 70 || m == 71)) << n << " " << m;
  EXPECT_TRUE(accepts(*grammar("root ::= [ab]{0,1000000000}"), "abab"));
  EXPECT_TRUE(accepts(*grammar("root ::= [ab]{100,}"), std::string(5000, 'a')));
  EXPECT_FALSE(accepts(*grammar("root ::= [ab]{100,}"), std::string(99, 'a')));
}

TEST(Gbnf, AmbiguityMultipliesNothing) {
  // 2^n readings of n brackets, one state.
  const auto g =
      grammar("root ::= a | b\na ::= \"(\" root \")\" | \"x\"\nb ::= \"(\" root \")\" | \"x\" \"x\"");
  const std::string open(400, '('), close(400, ')');
  EXPECT_TRUE(accepts(*g, open + "x" + close));
  EXPECT_TRUE(accepts(*g, open + "xx" + close));
  EXPECT_FALSE(accepts(*g, open + "xxx" + close));
  EXPECT_FALSE(accepts(*g, open + "x" + close + ")"));
}

TEST(Gbnf, CharactersAreWholeUtf8) {
  const auto g = grammar(R"(root ::= . [é-ü] "\u6771\U0001F600\x41")");
  EXPECT_TRUE(accepts(*g, "😀ö東😀A"));
  EXPECT_TRUE(accepts(*g, "\nü東😀A"));
  EXPECT_FALSE(accepts(*g, "aý東😀A"));
  EXPECT_FALSE(accepts_beginning(*g, "\x80"));
  EXPECT_FALSE(accepts_beginning(*g, "\xC0\x80"));
  EXPECT_FALSE(accepts_beginning(*g, "\xED\xA0\x80")) << "a surrogate";
  EXPECT_FALSE(accepts_beginning(*g, "\xF4\x90\x80\x80")) << "beyond Unicode";
}

TEST(Gbnf, ErrorsNameThePlace) {
  EXPECT_NE(error_of("root ::= \"a\"\nroot ::= \"b\"").find("line 2, column 1"), std::string::npos);
  EXPECT_NE(error_of("root ::= x").find("\"x\""), std::string::npos);
  EXPECT_NE(error_of("a ::= \"x\"").find("root"), std::string::npos);
  EXPECT_NE(error_of("root ::= a\na ::= \"x\" | root \"y\"").find("left recursion"), std::string::npos);
  EXPECT_NE(error_of("root ::= b root \"y\" | \"x\"\nb ::= \"q\"*").find("left recursion"),
            std::string::npos);
  EXPECT_NE(error_of("root ::= \"a\" root").find("none"), std::string::npos) << "never ends";
  for (const char* text :
       {"", "root ::=  (", "root ::= \"a", "root ::= [a", "root ::= \"\\q\"", "root = \"a\"",
        "root ::= \"a\"{3,2}", "root ::= \"a\"{x}", "root ::= [z-a]", "root ::= \"a\" )",
        "root ::= \"\\uD800\"", "root ::= \"a\"{99999999999}", "root ::= *"})
    EXPECT_NE(error_of(text), "") << text;
}

TEST(Gbnf, AdversarialGrammarsEndInErrors) {
  std::string nested = "root ::= ";
  for (int i = 0; i < 5000; ++i) nested += "(";
  EXPECT_NE(error_of(nested), "");
  std::string deep = "root ::= r0\n";
  for (int i = 0; i < 60; ++i)
    deep += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  deep += "r60 ::= \"\"";
  EXPECT_TRUE(accepts(*grammar(deep), "")) << "2^60 ways to say nothing";
  EXPECT_NE(error_of("root ::= (((\"abcdefgh\"{0,8}){0,8}){0,8}){0,8} [z-a]"), "");
  // A bounded repetition of a bounded repetition is not written out.
  EXPECT_TRUE(accepts(*grammar("root ::= ((([a-z]{1,1000}){1,1000}){1,1000} \";\"){1,1000}"), "abc;"));
}

TEST(Gbnf, CompletionAndEnd) {
  const auto open = grammar("root ::= [0-9]+");
  open->accept('1');
  EXPECT_TRUE(open->mask()->allows(kEosToken));
  EXPECT_TRUE(open->mask()->allows('2'));
  EXPECT_FALSE(open->is_complete()) << "more may follow";
  open->accept(kEosToken);
  EXPECT_TRUE(open->is_complete());
  EXPECT_FALSE(open->mask()->allows('2'));
  const auto closed = grammar("root ::= \"ab\"");
  closed->accept('a');
  EXPECT_FALSE(closed->mask()->allows(kEosToken));
  closed->accept('b');
  EXPECT_TRUE(closed->is_complete());
  closed->accept('c');
  EXPECT_FALSE(closed->is_complete());
  EXPECT_FALSE(closed->mask()->allows(kEosToken)) << "a broken text has no end";
}

TEST(Gbnf, ClonesGoTheirOwnWay) {
  const auto first = grammar("root ::= \"a\" (\"b\" | \"c\") \"d\"");
  first->accept('a');
  const auto second = first->clone();
  const TokenMask* mask = first->mask();
  second->accept('b');
  EXPECT_FALSE(second->mask()->allows('b'));
  EXPECT_TRUE(second->mask()->allows('d'));
  EXPECT_TRUE(mask->allows('b') && mask->allows('c') && !mask->allows('d'));
}

}  // namespace
}  // namespace mererun::testing
