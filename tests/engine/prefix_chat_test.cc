// Conversations on the bundled checkpoints: where snapshots are taken, and what a rewritten history reuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/prompt_plan.h"
#include "engine/run.h"
#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPlenty = std::size_t{256} << 20;

GenerateRequest chat(const Json& messages, bool thinking = false, const Json& tools = nullptr) {
  GenerateRequest r;
  r.chat =
      ChatPrompt{.messages = std::make_shared<const Json>(messages),
                 .tools = tools.is_null() ? nullptr : std::make_shared<const Json>(tools),
                 .template_arguments = std::make_shared<const Json>(Json{{"enable_thinking", thinking}})};
  r.max_tokens = 40;
  r.speculation = Speculation::kOn;
  return r;
}

Json say(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

GenerateResult cold(Engine& engine, GenerateRequest r) {
  r.uses_prefix_cache = false;
  return generate(engine, std::move(r));
}

void expect_same(const GenerateResult& got, const GenerateResult& want) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.output_sha256(), want.output_sha256());
  EXPECT_EQ(got.acceleration.draft_history_tokens, want.acceleration.draft_history_tokens);
}

Json reply_of(const GenerateResult& result) {
  Json reply = say("assistant", result.content);
  if (!result.reasoning.empty()) reply["reasoning_content"] = result.reasoning;
  return reply;
}

std::unique_ptr<Engine> load(const std::filesystem::path& folder) {
  return Engine::load(testing::engine_options_for(folder, kPlenty));
}

class PrefixChat : public ::testing::TestWithParam<std::string> {
 protected:
  PrefixChat() : engine_(load(testing::bundled(GetParam()))) {}
  std::unique_ptr<Engine> engine_;
};

TEST_P(PrefixChat, SnapshotsLieAtTheEndsOfSystemPartAndMessages) {
  const Json messages = {say("system", "You are brief."), say("user", "What is 12 + 30?"),
                         say("assistant", "42"), say("user", "And 5 more?")};
  const GenerateRequest r = chat(messages);
  const PromptPlan plan = plan_prompt(*engine_, r);
  std::vector<Position> ends;
  for (const std::size_t count : {1u, 3u, 4u}) {
    ChatPrompt part = *r.chat;
    part.messages =
        std::make_shared<const Json>(messages.begin(), messages.begin() + static_cast<long>(count));
    ends.push_back(static_cast<Position>(engine_->tokenizer().encode(engine_->render(part, false)).size()));
  }
  EXPECT_EQ(plan.semantic, ends);
  EXPECT_LT(plan.semantic.back(), static_cast<Position>(plan.ids.size()));

  // Another conversation with the same system part reuses it (B036); so does an edit of the last message.
  generate(*engine_, chat(messages));
  Json other = {messages[0], say("user", "Tell me about the whale.")};
  GenerateResult got = generate(*engine_, chat(other));
  EXPECT_EQ(got.prefix.matched_tokens, ends[0]);
  EXPECT_EQ(got.prefix.kind, "semantic");
  expect_same(got, cold(*engine_, chat(other)));
  Json edited = messages;
  edited[3]["content"] = "And 6 less?";
  got = generate(*engine_, chat(edited));
  EXPECT_EQ(got.prefix.matched_tokens, ends[1]);
  expect_same(got, cold(*engine_, chat(edited)));
}

TEST_P(PrefixChat, AnEditOfAnEarlierTurnReusesTheTurnsBeforeIt) {
  std::string words;
  for (int i = 0; i < 26; ++i) words += "The harbor was quiet, and boats lay at the quay. ";
  Json messages = {say("system", "You are brief.")};
  for (int turn = 0; turn < 4; ++turn) {
    messages.push_back(say("user", words + std::to_string(turn)));
    messages.push_back(say("assistant", "Noted: " + std::to_string(turn)));
  }
  messages.push_back(say("user", "How many?"));
  const PromptPlan plan = plan_prompt(*engine_, chat(messages));
  EXPECT_EQ(plan.system_end, plan.semantic.front());
  ASSERT_GE(plan.message_ends.size(), 4u);
  for (std::size_t i = 1; i < plan.message_ends.size(); ++i)
    EXPECT_GE(plan.message_ends[i] - plan.message_ends[i - 1], kMessageGap);
  const auto length_of = [&](std::size_t count) {
    ChatPrompt part = *chat(messages).chat;
    part.messages =
        std::make_shared<const Json>(messages.begin(), messages.begin() + static_cast<long>(count));
    return static_cast<int>(engine_->tokenizer().encode(engine_->render(part, false)).size());
  };
  generate(*engine_, chat(messages));
  for (const std::size_t turn : {3u, 2u, 1u}) {
    Json edited = messages;
    edited[1 + 2 * turn]["content"] = "Something else. " + words;
    const GenerateResult got = generate(*engine_, chat(edited));
    // The long message before it, if not the short reply to that.
    EXPECT_GE(got.prefix.matched_tokens, length_of(2 * turn) - 2) << turn;
    EXPECT_LE(got.prefix.matched_tokens, length_of(1 + 2 * turn) + 5);
    if (turn == 2) expect_same(got, cold(*engine_, chat(edited)));
  }
}

TEST_P(PrefixChat, ToolsAloneHaveABoundaryAndWarmEqualsCold) {  // prefix.tools_warm_equals_cold, B043
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "add", "description": "Adds.",
      "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}])");
  const Json one = {say("user", "What is 17 + 25?")};
  const Json two = {say("user", "Add 3 and 4.")};
  const PromptPlan plan = plan_prompt(*engine_, chat(one, false, tools));
  ASSERT_GE(plan.semantic.size(), 2u);
  const GenerateResult first = generate(*engine_, chat(one, false, tools));
  const GenerateResult second = generate(*engine_, chat(one, false, tools));
  EXPECT_EQ(second.prefix.outcome, "exact");
  ASSERT_EQ(second.tool_calls.size(), first.tool_calls.size());
  for (std::size_t i = 0; i < first.tool_calls.size(); ++i)
    EXPECT_EQ(second.tool_calls[i].arguments, first.tool_calls[i].arguments);
  expect_same(second, cold(*engine_, chat(one, false, tools)));
  const GenerateResult other = generate(*engine_, chat(two, false, tools));
  EXPECT_EQ(other.prefix.matched_tokens, plan.semantic.front());
  expect_same(other, cold(*engine_, chat(two, false, tools)));
}

TEST_P(PrefixChat, FiveTurnsReuseTheReplies) {  // prefix.growing_conversation
  Json messages = Json::array();
  const char* questions[] = {"What is 47 + 85?", "Tell me about the whale.",
                             "Write a function that adds two numbers.", "What is 9 * 12?",
                             "Describe a storm at sea."};
  for (int turn = 0; turn < 5; ++turn) {
    messages.push_back(say("user", questions[turn]));
    const GenerateResult got = generate(*engine_, chat(messages));
    EXPECT_EQ(got.prefix.outcome, turn == 0 ? "miss" : "prefix");
    expect_same(got, cold(*engine_, chat(messages)));
    messages.push_back(reply_of(got));
  }
  EXPECT_EQ(engine_->prefix_cache().counters().hits, 4);
}

/// The bundled template with reasoning dropped from every turn before the last user message.
std::filesystem::path forgetful(const testing::TempFolder& temp, const std::filesystem::path& bundled) {
  const std::filesystem::path folder = temp / "forgetful";
  std::filesystem::copy(bundled, folder, std::filesystem::copy_options::recursive);
  std::ifstream in(folder / "chat_template.jinja");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const std::string kept =
      "{{- '<|im_start|>assistant\\n<think>\\n' + reasoning + '\\n</think>\\n\\n' + content }}";
  const auto at = text.find(kept);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, kept.size(), "{{- '<|im_start|>assistant\\n' + content }}");
  testing::write_file(folder / "chat_template.jinja", text);
  return folder;
}

TEST_P(PrefixChat, ARewrittenReasoningIsReusedUpToTheRewrite) {  // prefix.reasoning_rewrite, B056
  const testing::TempFolder temp;
  const auto engine = load(forgetful(temp, testing::bundled(GetParam())));
  for (const bool thinking : {false, true}) {
    Json messages = {say("user", thinking ? "What is 21 + 34?" : "What is 47 + 85?")};
    const GenerateRequest asked = chat(messages, thinking);
    const PromptPlan plan = plan_prompt(*engine, asked);
    const GenerateResult one = generate(*engine, chat(messages, thinking));
    messages.push_back(reply_of(one));
    messages.push_back(say("user", "And 5 more?"));
    const GenerateResult two = generate(*engine, chat(messages, thinking));
    EXPECT_EQ(two.prefix.matched_tokens, plan.semantic.back()) << "the end of the first question, not 0";
    EXPECT_EQ(two.prefix.kind, "semantic");
    EXPECT_THAT(two.prefix.reason, ::testing::StartsWith("diverged-at "));
    expect_same(two, cold(*engine, chat(messages, thinking)));
  }
  // The bundled template keeps it: the reply itself is reused.
  Json messages = {say("user", "What is 47 + 85?")};
  const GenerateResult one = generate(*engine_, chat(messages, true));
  messages.push_back(reply_of(one));
  messages.push_back(say("user", "And 5 more?"));
  const GenerateResult two = generate(*engine_, chat(messages, true));
  EXPECT_GT(two.prefix.matched_tokens, static_cast<int>(one.prompt_ids.size()) - 5);
  expect_same(two, cold(*engine_, chat(messages, true)));
}

TEST_P(PrefixChat, TurnsBeforeTheLastTwoAreThinnedAlsoWhereReasoningIsDropped) {
  const testing::TempFolder temp;
  for (const bool forgets : {false, true}) {
    const auto engine =
        load(forgets ? forgetful(temp, testing::bundled(GetParam())) : testing::bundled(GetParam()));
    Json messages = Json::array();
    std::vector<std::vector<TokenId>> prompts;
    for (int turn = 0; turn < 7; ++turn) {
      messages.push_back(say("user", "What is 21 + " + std::to_string(turn) + "? And what is that less 3?"));
      GenerateRequest asked = chat(messages, true);
      asked.max_tokens = 8;
      const GenerateResult got = generate(*engine, std::move(asked));
      EXPECT_EQ(got.prefix.outcome, turn == 0 ? "miss" : "prefix");
      prompts.push_back(got.prompt_ids);
      Json reply = say("assistant", "It is " + std::to_string(21 + turn) + ".");
      if (!forgets) reply["reasoning_content"] = "Sums are easy.";
      messages.push_back(std::move(reply));
    }
    const auto is_kept = [&](const std::vector<TokenId>& ids) {
      const auto snapshot = engine->prefix_cache().peek(ids, true);
      return snapshot && snapshot->ids().size() == ids.size();
    };
    EXPECT_TRUE(is_kept(prompts[6]));
    EXPECT_TRUE(is_kept(prompts[5])) << "the last turn may be asked again";
    for (const std::size_t turn : {2u, 3u}) EXPECT_FALSE(is_kept(prompts[turn])) << turn;
    EXPECT_LE(engine->prefix_cache().entries(), 22u);
    expect_same(generate(*engine, chat(messages, true)), cold(*engine, chat(messages, true)));
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, PrefixChat, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& p) {
                           return std::string(p.param == "demo-dense-4bit" ? "Dense" : "Moe");
                         });

}  // namespace
}  // namespace mererun
