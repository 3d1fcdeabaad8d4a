#include "decode/stop_rules.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

constexpr TokenId kEos = 99;

StopOptions stopping_at(std::vector<std::string> texts) {
  return {.eos_ids = {kEos}, .stop_strings = std::move(texts), .max_tokens = 1000};
}

struct Output {
  std::string text;
  std::vector<std::string> pieces;  // as released, token by token
  std::optional<FinishReason> finish;
  std::int64_t emitted = 0;
  bool is_cut = false;
};

/// Feeds texts as tokens 0, 1, ... until the request is over; releases the tail when they run out.
Output run(const StopOptions& options, const std::vector<std::string>& tokens) {
  StopRules rules(options);
  Output output;
  TokenId id = 0;
  for (const std::string& token : tokens) {
    const StopStep step = rules.accept({id++, token});
    output.pieces.push_back(step.text);
    output.text += step.text;
    output.is_cut = step.is_cut;
    if ((output.finish = step.finish)) break;
  }
  if (!output.finish) output.text += rules.release_held();
  output.emitted = rules.num_emitted();
  return output;
}

/// Feeds ids without text.
Output run_ids(const StopOptions& options, const std::vector<TokenId>& ids) {
  StopRules rules(options);
  Output output;
  for (const TokenId id : ids) {
    if ((output.finish = rules.accept({id, "x"}).finish)) break;
  }
  output.emitted = rules.num_emitted();
  return output;
}

/// All ways, or up to `limit` random ones, to cut `text` into non-empty tokens at character borders.
std::vector<std::vector<std::string>> splits_of(const std::string& text, int limit) {
  std::vector<std::string> characters;
  for (const char byte : text) {
    if ((static_cast<unsigned char>(byte) & 0xc0) == 0x80) {
      characters.back().push_back(byte);
    } else {
      characters.emplace_back(1, byte);
    }
  }
  const std::size_t borders = characters.size() - 1;
  const bool exhaustive = borders < 12;
  std::mt19937_64 random(1);
  std::vector<std::vector<std::string>> splits;
  const std::uint64_t count = exhaustive ? std::uint64_t{1} << borders : static_cast<std::uint64_t>(limit);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t cuts = exhaustive ? i : random() & random();
    std::vector<std::string> tokens = {characters[0]};
    for (std::size_t c = 1; c < characters.size(); ++c) {
      if ((cuts >> (c - 1) % 64 & 1) != 0) {
        tokens.push_back(characters[c]);
      } else {
        tokens.back() += characters[c];
      }
    }
    splits.push_back(std::move(tokens));
  }
  return splits;
}

TEST(StreamMatcher, FindsOverlappingOccurrences) {
  StreamMatcher matcher("abab");
  std::string found;
  for (const char byte : std::string("abababab")) found.push_back(matcher.feed(byte) ? '1' : '0');
  EXPECT_EQ(found, "00010101");
  EXPECT_EQ(matcher.partial(), 2u);
}

TEST(StopRules, EndOfSequenceIsNeitherEmittedNorCounted) {
  StopRules rules(stopping_at({}));
  EXPECT_TRUE(rules.accept({1, "a"}).is_emitted);
  const StopStep step = rules.accept({kEos, "</s>"});
  EXPECT_FALSE(step.is_emitted);
  EXPECT_EQ(step.text, "");
  EXPECT_EQ(step.finish, FinishReason::kStop);
  EXPECT_FALSE(step.is_cut);
  EXPECT_EQ(rules.num_emitted(), 1);
}

TEST(StopRules, EarliestEventWinsInsideOneAcceptedRun) {
  // Five tokens are allowed, the end comes third... or fifth, or sixth.
  StopOptions options = stopping_at({});
  options.max_tokens = 5;
  Output output = run_ids(options, {10, 11, kEos, 20, 21, 22});
  EXPECT_EQ(output.emitted, 2);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  output = run_ids(options, {10, 11, 12, 20, kEos});
  EXPECT_EQ(output.emitted, 4);
  EXPECT_EQ(output.finish, FinishReason::kStop);
  output = run_ids(options, {10, 11, 12, 20, 21, kEos});
  EXPECT_EQ(output.emitted, 5);
  EXPECT_EQ(output.finish, FinishReason::kLength);
}

TEST(StopRules, StopStringInsideTheBudgetIsNoLength) {
  StopOptions options = stopping_at({"STOP"});
  options.max_tokens = 5;
  const Output output = run(options, {"a", "b", "STOP", "c", "d", "e"});
  EXPECT_EQ(output.text, "ab");
  EXPECT_EQ(output.emitted, 3) << "the token that completed the stop string counts";
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_TRUE(output.is_cut);
}

TEST(StopRules, StopBeatsLengthOnOneToken) {
  StopOptions options = stopping_at({"!"});
  options.max_tokens = 2;
  EXPECT_EQ(run(options, {"a", "b!"}).finish, FinishReason::kStop);
  EXPECT_EQ(run(options, {"a", "b"}).finish, FinishReason::kLength);
  StopRules rules({.max_tokens = 1});
  EXPECT_EQ(rules.accept({1, "{}", true}).finish, FinishReason::kStop) << "so does a completed constraint";
}

TEST(StopRules, StopStringAcrossTokensIsCutWhole) {
  const Output output = run(stopping_at({"\n\nUser:"}), {"Hello", "\n", "\nUs", "er", ": more"});
  EXPECT_EQ(output.text, "Hello");
  EXPECT_EQ(output.finish, FinishReason::kStop);
  EXPECT_EQ(output.emitted, 5);
}

TEST(StopRules, HeldTailIsReleasedWhenItLeadsNowhere) {
  const Output output = run(stopping_at({"\n\nUser:"}), {"Hello", "\n", "\nUs", "ed"});
  EXPECT_EQ(output.pieces, (std::vector<std::string>{"Hello", "", "", "\n\nUsed"}));
}

TEST(StopRules, HoldsBackTheMarkersOfReasoningAndToolCalls) {
  EXPECT_EQ(run(stopping_at({}), {"a <", "/thi", "nk>", "b<tool", "_call", ">c"}).pieces,
            (std::vector<std::string>{"a ", "", "</think>", "b", "", "<tool_call>c"}));
  EXPECT_EQ(run(stopping_at({}), {"1 <", " 2"}).pieces, (std::vector<std::string>{"1 ", "< 2"}));
}

TEST(StopRules, LengthAndEndOfSequenceReleaseTheHeldTail) {
  StopOptions options = stopping_at({"abc"});
  options.max_tokens = 2;
  EXPECT_EQ(run(options, {"x", "ab"}).text, "xab");
  StopRules rules(stopping_at({"abc"}));
  EXPECT_EQ(rules.accept({1, "xab"}).text, "x");
  EXPECT_EQ(rules.accept({kEos, ""}).text, "ab");
}

TEST(StopRules, OverlappingStopStringsEndAtTheFirstThatIsComplete) {
  EXPECT_EQ(run(stopping_at({"abcd", "bc"}), {"xabcd"}).text, "xa");
  EXPECT_EQ(run(stopping_at({"bcd", "abcd"}), {"xabcd"}).text, "x") << "of two that end together the longer";
  EXPECT_EQ(run(stopping_at({"aab"}), {"aaaab"}).text, "aa") << "a false start inside a match";
  EXPECT_EQ(run(stopping_at({"abab"}), {"aba", "cabab"}).text, "abac");
}

TEST(StopRules, StopsAfterTheFirstCompleteToolCall) {
  StopOptions options = stopping_at({});
  options.stops_after_tool_call = true;
  const std::vector<std::string> tokens = {"text ", "<tool_call>", "{}", "</tool", "_call>\n", "<tool_call>"};
  const Output output = run(options, tokens);
  EXPECT_EQ(output.text, "text <tool_call>{}</tool_call>");
  EXPECT_EQ(output.finish, FinishReason::kToolCalls);
  EXPECT_EQ(output.emitted, 5);
  EXPECT_TRUE(output.is_cut);
  options.stops_after_tool_call = false;
  EXPECT_EQ(run(options, tokens).finish, std::nullopt);
}

TEST(StopRules, ToolCallsInsideReasoningOrWithoutAStartDoNotEnd) {
  StopOptions options = stopping_at({});
  options.stops_after_tool_call = true;
  EXPECT_EQ(run(options, {"a</tool_call>b"}).finish, std::nullopt);
  options.starts_in_reasoning = true;
  EXPECT_EQ(run(options, {"<tool_call>x</tool_call>", " still"}).finish, std::nullopt);
  const Output output = run(options, {"<tool_call>x</tool_call></think>", "<tool_call>y</tool_call>", "z"});
  EXPECT_EQ(output.finish, FinishReason::kToolCalls);
  EXPECT_EQ(output.emitted, 2);
}

TEST(StopRules, TheFirstToCompleteOfStopStringAndToolCallDecides) {
  StopOptions options = stopping_at({"END"});
  options.stops_after_tool_call = true;
  EXPECT_EQ(run(options, {"<tool_call>x</tool_call>END"}).finish, FinishReason::kToolCalls);
  EXPECT_EQ(run(options, {"<tool_call>xEND</tool_call>"}).finish, FinishReason::kStop);
  EXPECT_EQ(run(options, {"<tool_call>xEND</tool_call>"}).text, "<tool_call>x");
}

TEST(StopRules, CountReasoningTokensThatWereEmitted) {
  StopOptions options = stopping_at({});
  options.starts_in_reasoning = true;
  StopRules rules(options);
  for (const char* text : {"think", "ing", "</th", "ink>", "answer"}) rules.accept({1, text});
  rules.accept({kEos, ""});
  EXPECT_EQ(rules.num_reasoning_tokens(), 4);
  EXPECT_EQ(rules.num_emitted(), 5);

  StopRules unclosed(options);
  unclosed.accept({1, "think"});
  unclosed.accept({kEos, ""});
  EXPECT_EQ(unclosed.num_reasoning_tokens(), 1) << "an end of sequence is no reasoning token";
  EXPECT_EQ(unclosed.num_emitted(), 1);

  StopRules none(stopping_at({}));
  none.accept({1, "x</think>y"});
  EXPECT_EQ(none.num_reasoning_tokens(), 0);
}

TEST(StopRules, IgnoresTheEndOfSequenceWhereItIsNotListed) {
  StopRules rules({.max_tokens = 3});
  EXPECT_EQ(rules.accept({kEos, ""}).finish, std::nullopt);
  EXPECT_EQ(rules.accept({kEos, ""}).finish, std::nullopt);
  EXPECT_EQ(rules.accept({kEos, ""}).finish, FinishReason::kLength);
  EXPECT_EQ(rules.num_emitted(), 3);
}

TEST(StopRules, RejectsEmptyStopStringsAndBudgets) {
  EXPECT_THROW(StopRules(stopping_at({"a", ""})), Error);
  EXPECT_THROW(StopRules({.max_tokens = 0}), Error);
}

TEST(StopRules, ReleasedTextDoesNotDependOnTokenBorders) {
  struct Case {
    std::string text;
    StopOptions options;
    std::string expected;
    std::optional<FinishReason> finish;
  };
  StopOptions tools = stopping_at({"Observation:"});
  tools.stops_after_tool_call = true;
  StopOptions thinking = tools;
  thinking.starts_in_reasoning = true;
  const std::vector<Case> cases = {
      {"aababaabbab", stopping_at({"abb"}), "aababa", FinishReason::kStop},
      {"xx</thinx<<tool", stopping_at({}), "xx</thinx<<tool", std::nullopt},
      {"abcabcabd..", stopping_at({"abcabd"}), "abc", FinishReason::kStop},
      {"aaaaaaab", stopping_at({"aaab", "aaaaaaaaa"}), "aaaa", FinishReason::kStop},
      {"é€😀é€x😀", stopping_at({"€x"}), "é€😀é", FinishReason::kStop},
      {"é€😀é€y", stopping_at({"€x"}), "é€😀é€y", std::nullopt},
      {"say <tool_call>f</tool_call> and Observation: no", tools, "say <tool_call>f</tool_call>",
       FinishReason::kToolCalls},
      {"say <tool_cObservation:all>f</tool_call>", tools, "say <tool_c", FinishReason::kStop},
      {"<tool_call></tool_call></think>a<tool_call>b</tool_call>c", thinking,
       "<tool_call></tool_call></think>a<tool_call>b</tool_call>", FinishReason::kToolCalls},
  };
  for (const Case& test : cases) {
    for (const std::vector<std::string>& tokens : splits_of(test.text, 3000)) {
      const Output output = run(test.options, tokens);
      ASSERT_EQ(output.text, test.expected) << testing::PrintToString(tokens);
      ASSERT_EQ(output.finish, test.finish) << testing::PrintToString(tokens);
    }
  }
}

TEST(StopRules, NothingThatCouldBecomeAStopStringLeavesEarly) {
  // Random texts over a tiny alphabet: what was released before the end is a prefix of the final text at each
  // step, and the final text is the one a search over the whole text gives.
  std::mt19937 random(4);
  for (int i = 0; i < 3000; ++i) {
    const auto word = [&random](std::size_t length) {
      std::string text;
      while (text.size() < length) text.push_back(static_cast<char>('a' + random() % 2));
      return text;
    };
    const std::vector<std::string> stops = {word(2 + random() % 5), word(2 + random() % 5)};
    std::vector<std::string> tokens;
    std::string whole;
    for (int t = 0; t < 12; ++t) {
      tokens.push_back(word(random() % 4));
      whole += tokens.back();
    }
    std::optional<std::size_t> first_end;
    std::size_t cut = whole.size();
    for (std::size_t end = 1; end <= whole.size() && !first_end; ++end) {
      for (const std::string& stop : stops) {
        if (end >= stop.size() && whole.compare(end - stop.size(), stop.size(), stop) == 0) {
          first_end = end;
          cut = std::min(cut, end - stop.size());
        }
      }
    }
    const Output output = run(stopping_at(stops), tokens);
    ASSERT_EQ(output.text, whole.substr(0, cut));
    ASSERT_EQ(output.finish.has_value(), first_end.has_value());
  }
}

TEST(StopRules, LongStopStringsStayLinear) {
  // 16 stop strings of 20,000 equal bytes: a quadratic search would not end within the test's time.
  std::vector<std::string> stops;
  for (int i = 0; i < 16; ++i) stops.push_back(std::string(20000, 'a') + static_cast<char>('b' + i));
  StopOptions options = stopping_at(stops);
  options.max_tokens = 1 << 20;
  StopRules rules(options);
  std::size_t released = 0;
  for (int i = 0; i < 100000; ++i) released += rules.accept({1, "a"}).text.size();
  EXPECT_EQ(released, 80000u);
}

}  // namespace
}  // namespace mererun
