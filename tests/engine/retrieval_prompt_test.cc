#include "engine/retrieval_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace mererun {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const ChatEncoder& demo_encoder() {
  static const ChatEncoder kEncoder(MERERUN_SOURCE_DIR "/models/demo-dense-4bit");
  return kEncoder;
}

int demo_length(const std::vector<ChatTurn>& turns) {
  return static_cast<int>(demo_encoder().encode(turns).size());
}

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(RetrievalPrompts, HaveTheExactLengths) {
  const RetrievalPrompts prompts = build_retrieval_prompts(demo_length, 4944, 4973);
  EXPECT_EQ(demo_length(prompts.first), 4944);
  EXPECT_EQ(demo_length(prompts.follow_up), 4973);
}

TEST(RetrievalPrompts, EveryLengthNearAnotherIsReached) {
  for (int tokens = 300; tokens < 330; ++tokens) {
    const RetrievalPrompts prompts = build_retrieval_prompts(demo_length, tokens, tokens + 40);
    EXPECT_EQ(demo_length(prompts.first), tokens);
    EXPECT_EQ(demo_length(prompts.follow_up), tokens + 40);
  }
}

TEST(RetrievalPrompts, HoldTheFactOnceAfterTwoFifthsAndAskForItLast) {
  const RetrievalPrompts prompts = build_retrieval_prompts(demo_length, 2000, 2040);
  const std::string& text = prompts.first.front().content;
  EXPECT_EQ(occurrences(text, prompts.marker), 1U);
  const double place = static_cast<double>(text.find(prompts.marker)) / static_cast<double>(text.size());
  EXPECT_NEAR(place, 0.4, 0.03);
  EXPECT_THAT(text, EndsWith("What is the secret code for the mill?"));
}

TEST(RetrievalPrompts, TheFollowUpExtendsTheFirstByAReplyAndAQuestion) {
  const RetrievalPrompts prompts = build_retrieval_prompts(demo_length, 600, 640);
  ASSERT_EQ(prompts.follow_up.size(), 3U);
  EXPECT_EQ(prompts.follow_up[0].content, prompts.first[0].content);
  EXPECT_EQ(prompts.follow_up[1].role, "assistant");
  EXPECT_THAT(prompts.follow_up[1].content, HasSubstr(prompts.marker));
  EXPECT_EQ(prompts.follow_up[2].role, "user");
}

TEST(RetrievalPrompts, LengthsThatNoTextHasAreRefused) {
  const auto refusal = [](const ChatLength& length, int first, int second) -> std::string {
    try {
      build_retrieval_prompts(length, first, second);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal(demo_length, 20, 60), HasSubstr("a prompt of exactly 20 tokens"));
  EXPECT_THAT(refusal(demo_length, 600, 605), HasSubstr("a follow-up of exactly 605 tokens"));
  // Every conversation has an even length here, so no odd one can be formed.
  const ChatLength even = [](const std::vector<ChatTurn>& turns) { return 2 * demo_length(turns); };
  EXPECT_THAT(refusal(even, 601, 700), HasSubstr("a prompt of exactly 601 tokens"));
}

TEST(NumberedPrompt, NumbersItsLinesAndHoldsTheChecksumOnce) {
  const std::string text = numbered_prompt(150);
  EXPECT_THAT(text, HasSubstr("\n1. "));
  EXPECT_THAT(text, HasSubstr("\n150. "));
  EXPECT_EQ(text.find("\n151. "), std::string::npos);
  EXPECT_EQ(occurrences(text, "45257"), 1U);
  EXPECT_LT(text.find("\n60. "), text.find("45257"));
  EXPECT_LT(text.find("45257"), text.find("\n61. "));
  EXPECT_THAT(text, EndsWith("?"));
  EXPECT_THAT(numbered_prompt(1), HasSubstr("45257"));
}

}  // namespace
}  // namespace mererun
