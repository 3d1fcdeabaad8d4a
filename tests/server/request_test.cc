// What requests may say, in each of the APIs: accepted fields reach the engine's request, refused ones are
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/chat_request.h"
#include "server/completion.h"
#include "server/messages_request.h"
#include "server/responses_request.h"
#include "tests/server/live_service.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json kHello = Json::array({{{"role", "user"}, {"content", "hello"}}});
const Json kTool = {{"type", "function"},
                    {"function", {{"name", "look"}, {"parameters", {{"type", "object"}}}}}};

class Requests : public testing::WithTalkingEngine {
 protected:
  static Json chat(const std::string& name, Json value) {
    Json body{{"messages", kHello}};
    body[name] = std::move(value);
    return body;
  }

  /// "status param: message", or "accepted".
  template <typename Parse>
  static std::string refusal(Parse parse, const Json& body) {
    try {
      parse(body, *engine_);
    } catch (const Error& error) {
      const ApiError api = ApiError::of(error);
      return std::to_string(api.status()) + " " + api.param() + ": " + api.what();
    }
    return "accepted";
  }
  static std::string chat_refusal(const std::string& name, Json value) {
    return refusal(parse_chat_request, chat(name, std::move(value)));
  }
};

TEST_F(Requests, BadFieldsOfAChatAreNamed) {
  const std::vector<std::pair<std::string, Json>> bad = {{"temperature", 2.5},
                                                         {"temperature", "1"},
                                                         {"top_p", 0},
                                                         {"top_p", 1.1},
                                                         {"top_k", -1},
                                                         {"top_k", 1.5},
                                                         {"min_p", 2},
                                                         {"presence_penalty", 3},
                                                         {"frequency_penalty", -2.5},
                                                         {"repetition_penalty", 0},
                                                         {"repetition_penalty", 1e-300},
                                                         {"seed", "abc"},
                                                         {"seed", 1.5},
                                                         {"max_tokens", 0},
                                                         {"max_tokens", "8"},
                                                         {"max_completion_tokens", -4},
                                                         {"stop", 5},
                                                         {"stop", ""},
                                                         {"stop", Json::array({"a", ""})},
                                                         {"stop", Json(std::vector<std::string>(17, "a"))},
                                                         {"logprobs", 3},
                                                         {"top_logprobs", 3},
                                                         {"n", 2},
                                                         {"n", 0},
                                                         {"stream", "yes"},
                                                         {"stream_options", Json::object()},
                                                         {"audio", Json::object()},
                                                         {"functions", Json::array({1})},
                                                         {"prediction", Json::object()},
                                                         {"best_of", 2},
                                                         {"suffix", "x"},
                                                         {"echo", true},
                                                         {"modalities", Json::array({"audio"})},
                                                         {"tools", "x"},
                                                         {"tool_choice", "required"},
                                                         {"tool_choice", "sometimes"},
                                                         {"parallel_tool_calls", 1},
                                                         {"response_format", "json"},
                                                         {"speculation", "maybe"},
                                                         {"mtp_block_size", 1},
                                                         {"mtp_block_size", 2147483648},
                                                         {"mtp_block_size", 4.5},
                                                         {"reasoning_effort", 4},
                                                         {"chat_template_kwargs", Json::array()},
                                                         {"logit_bias", Json::array()},
                                                         {"messages", "x"},
                                                         {"messages", Json::array()}};
  for (const auto& [name, value] : bad) {
    const std::string got = chat_refusal(name, value);
    EXPECT_THAT(got, ::testing::StartsWith("400 " + name)) << name << " " << value;
    EXPECT_THAT(got, HasSubstr(": expected ")) << name << " " << value;
  }
  EXPECT_THAT(chat_refusal("logit_bias", {{"9999", 1}}),
              HasSubstr("logit_bias: expected token ids 0..8191, got \"9999\""));
  EXPECT_THAT(chat_refusal("logit_bias", {{"5", 101}}),
              HasSubstr("logit_bias.5: expected a number from -100 to 100"));
  EXPECT_THAT(chat_refusal("model", "gpt-4"),
              HasSubstr("404 model: model: expected local:talking, got \"gpt-4\""));
}

TEST_F(Requests, GoodFieldsOfAChatReachTheEngine) {
  Json body{{"messages", kHello},
            {"model", "local:talking"},
            {"temperature", 1.5},
            {"top_p", 0.5},
            {"top_k", 3},
            {"min_p", 0.1},
            {"presence_penalty", 1},
            {"frequency_penalty", -1},
            {"repetition_penalty", 1.1},
            {"seed", -1},
            {"max_tokens", 5},
            {"max_completion_tokens", 7},
            {"stop", "x"},
            {"logprobs", true},
            {"top_logprobs", 4},
            {"speculation", "off"},
            {"mtp_block_size", 3},
            {"logit_bias", {{"5", -100}}},
            {"tools", Json::array({kTool})},
            {"parallel_tool_calls", false},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}},
            {"user", "u"},
            {"foo", 1},
            {"n", 1},
            {"reasoning_effort", "low"},
            {"chat_template_kwargs", {{"enable_thinking", true}, {"other", 1}}}};
  const ApiRequest out = parse_chat_request(body, *engine_);
  const SamplingOptions& s = out.generate.sampling;
  EXPECT_EQ(s.temperature, 1.5);
  EXPECT_EQ(s.top_p, 0.5);
  EXPECT_EQ(s.top_k, 3);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.presence_penalty, 1);
  EXPECT_EQ(s.frequency_penalty, -1);
  EXPECT_EQ(s.repetition_penalty, 1.1);
  EXPECT_EQ(s.seed, 18446744073709551615u);
  ASSERT_EQ(s.logit_bias.size(), 1u);
  EXPECT_EQ(s.logit_bias[0].id, 5);
  EXPECT_EQ(out.generate.max_tokens, 7);
  EXPECT_THAT(out.generate.stop, ElementsAre("x"));
  EXPECT_EQ(out.generate.logprobs, 4);
  EXPECT_EQ(out.generate.speculation, Speculation::kOff);
  EXPECT_EQ(out.generate.width, 3);
  EXPECT_TRUE(out.generate.stops_after_tool_call);
  EXPECT_TRUE(out.stream && out.include_usage);
  EXPECT_THAT(out.ignored, ElementsAre("foo"));
  EXPECT_EQ(*out.generate.chat->template_arguments,
            Json({{"enable_thinking", true}, {"reasoning_effort", "low"}, {"other", 1}}));
}

TEST_F(Requests, ASeedIsRandomUnlessItIsNamed) {
  const auto seed = [&] {
    return parse_chat_request({{"messages", kHello}}, *engine_).generate.sampling.seed;
  };
  EXPECT_NE(seed(), seed());
}

TEST_F(Requests, MessagesBecomeWhatTemplatesTake) {
  const Json messages = Json::array(
      {{{"role", "system"}, {"content", "A"}},
       {{"role", "developer"}, {"content", Json::array({{{"type", "text"}, {"text", "B"}}})}},
       {{"role", "user"},
        {"content", Json::array({{{"type", "text"}, {"text", "x"}}, {{"type", "text"}, {"text", "y"}}})}},
       {{"role", "assistant"},
        {"content", nullptr},
        {"reasoning_content", "r"},
        {"tool_calls", Json::array({{{"id", "c"},
                                     {"type", "function"},
                                     {"function", {{"name", "f"}, {"arguments", "{\"k\": [1]}"}}}}})}},
       {{"role", "tool"}, {"tool_call_id", "c"}, {"content", "\x1b done"}}});
  const Json got = *parse_chat_request({{"messages", messages}}, *engine_).generate.chat->messages;
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0]["content"], "A\n\nB");
  EXPECT_EQ(got[1]["content"], "xy");
  EXPECT_EQ(got[2]["reasoning_content"], "r");
  EXPECT_EQ(got[2]["tool_calls"][0]["function"]["arguments"], Json({{"k", {1}}}));
  EXPECT_EQ(got[3]["content"], "\x1b done");
}

TEST_F(Requests, BadMessagesAreNamed) {
  const auto one = [&](Json message) { return chat_refusal("messages", Json::array({std::move(message)})); };
  EXPECT_THAT(one({{"role", "cook"}, {"content", "x"}}),
              HasSubstr("messages[0].role: expected one of system"));
  EXPECT_THAT(one({{"role", "user"}}), HasSubstr("messages[0].content: expected a string or a list"));
  EXPECT_THAT(one({{"role", "assistant"}}), HasSubstr("messages[0].content"));
  EXPECT_THAT(one(5), HasSubstr("messages[0]: expected an object, got 5"));
  for (const char* type : {"image_url", "input_image", "image", "video_url", "input_audio", "file"}) {
    const Json part{{"type", type}, {type, {{"url", "data:image/png;base64,AA"}}}};
    EXPECT_THAT(
        one({{"role", "user"}, {"content", Json::array({part})}}),
        HasSubstr("messages[0].content[0].type: expected a text part (this model is served without vision"));
  }
  const Json call{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{oops"}}}};
  EXPECT_THAT(one({{"role", "assistant"}, {"tool_calls", Json::array({call})}}),
              HasSubstr("messages[0].tool_calls[0].function.arguments: expected a JSON object as text"));
}

TEST_F(Requests, ToolsAreCheckedAndChosen) {
  const auto tools = [&](Json list) { return chat_refusal("tools", std::move(list)); };
  EXPECT_THAT(tools(Json::array({{{"type", "retrieval"}}})),
              HasSubstr("tools[0].type: expected \"function\", got \"retrieval\""));
  EXPECT_THAT(tools(Json::array({{{"type", "function"}, {"function", {{"name", "a b"}}}}})),
              HasSubstr("tools[0].function.name"));
  EXPECT_THAT(tools(Json::array({kTool, kTool})),
              HasSubstr("tools[1].function.name: expected a name that no other tool has"));
  Json body{{"messages", kHello}, {"tools", Json::array({kTool})}};
  EXPECT_NE(parse_chat_request(body, *engine_).generate.chat->tools, nullptr);
  EXPECT_EQ(parse_chat_request(body, *engine_).generate.constraint, nullptr);
  body["tool_choice"] = "none";
  EXPECT_EQ(parse_chat_request(body, *engine_).generate.chat->tools, nullptr);
  body["tool_choice"] = "required";
  EXPECT_NE(parse_chat_request(body, *engine_).generate.constraint, nullptr);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "look"}}}};
  EXPECT_NE(parse_chat_request(body, *engine_).generate.constraint, nullptr);
  body["tool_choice"]["function"]["name"] = "other";
  EXPECT_THAT(refusal(parse_chat_request, body),
              HasSubstr("tool_choice: expected the name of one of the tools, got \"other\""));
}

TEST_F(Requests, FormsOfTheOutputBecomeConstraints) {
  const auto constraint = [&](const std::string& name, Json value) {
    return parse_chat_request(chat(name, std::move(value)), *engine_).generate.constraint != nullptr;
  };
  const auto schema = [](Json inner) {
    return Json{{"type", "json_schema"}, {"json_schema", {{"schema", std::move(inner)}}}};
  };
  EXPECT_FALSE(constraint("response_format", {{"type", "text"}}));
  EXPECT_TRUE(constraint("response_format", {{"type", "json_object"}}));
  EXPECT_TRUE(constraint("response_format", schema({{"type", "integer"}})));
  EXPECT_TRUE(constraint("grammar", "root ::= \"yes\" | \"no\""));
  EXPECT_THAT(chat_refusal("response_format", {{"type", "xml"}}), HasSubstr("400 response_format.type: "));
  EXPECT_THAT(chat_refusal("response_format", {{"type", "json_schema"}}),
              HasSubstr("400 response_format.json_schema: "));
  EXPECT_THAT(chat_refusal("response_format", schema({{"type", "integer"}, {"multipleOf", 3}})),
              AllOf(HasSubstr("400 response_format.json_schema.schema: "), HasSubstr("multipleOf")));
  EXPECT_THAT(chat_refusal("grammar", "root ::= ("), HasSubstr("400 grammar: grammar: line 1"));
}

TEST_F(Requests, CompletionsTakeTextOrIds) {
  EXPECT_EQ(parse_completion_request({{"prompt", "ab"}}, *engine_).generate.text, "ab");
  EXPECT_EQ(parse_completion_request({{"prompt", Json::array({"ab"})}}, *engine_).generate.text, "ab");
  EXPECT_EQ(parse_completion_request({{"prompt", Json::array({5, 6})}}, *engine_).generate.ids,
            (std::vector<TokenId>{5, 6}));
  for (const Json& bad :
       {Json(5), Json::array(), Json::array({"a", "b"}), Json::array({1, "b"}), Json(nullptr)})
    EXPECT_THAT(refusal(parse_completion_request, {{"prompt", bad}}),
                HasSubstr("400 prompt: prompt: expected a string or a list of token ids"));
  EXPECT_THAT(refusal(parse_completion_request, {{"prompt", "a"}, {"echo", true}}), HasSubstr("echo"));
  EXPECT_THAT(refusal(parse_completion_request, {{"prompt", "a"}, {"suffix", "b"}}), HasSubstr("suffix"));
  for (const Json& off : {Json(""), Json(false), Json::array(), Json(nullptr)}) {
    const Json body{{"prompt", "a"}, {"suffix", off}, {"echo", off}};
    EXPECT_EQ(parse_completion_request(body, *engine_).generate.text, "a") << off;
  }
}

/// Wherever the list has them, system messages become the one system text.
TEST_F(Requests, AnthropicSystemMessagesAreFolded) {
  const Json user{{"role", "user"}, {"content", "u"}}, assistant{{"role", "assistant"}, {"content", "a"}};
  const Json system{{"role", "system"}, {"content", "s"}};
  for (const std::size_t at : {0u, 2u, 3u}) {
    Json list = Json::array({user, assistant, user});
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), system);
    const Json body{{"max_tokens", 5},
                    {"system", Json::array({{{"type", "text"}, {"text", "top"}}})},
                    {"messages", list}};
    const Json got = *parse_messages_request(body, *engine_).generate.chat->messages;
    ASSERT_EQ(got.size(), 4u) << at;
    EXPECT_EQ(got[0], Json({{"role", "system"}, {"content", "top\n\ns"}})) << at;
    EXPECT_EQ(got[3]["content"], "u") << at;
  }
}

TEST_F(Requests, AnthropicBlocksBecomeMessages) {
  const Json list = Json::array(
      {{{"role", "user"}, {"content", "q"}},
       {{"role", "assistant"},
        {"content",
         Json::array({{{"type", "thinking"}, {"thinking", "t"}, {"signature", ""}},
                      {{"type", "text"}, {"text", "x"}},
                      {{"type", "tool_use"}, {"id", "i"}, {"name", "f"}, {"input", {{"k", 1}}}}})}},
       {{"role", "user"},
        {"content",
         Json::array({{{"type", "tool_result"}, {"tool_use_id", "i"}, {"content", "r"}, {"is_error", true}},
                      {{"type", "text"}, {"text", "more"}}})}}});
  const Json body{{"max_tokens", 5},
                  {"messages", list},
                  {"thinking", {{"type", "enabled"}, {"budget_tokens", 9}}},
                  {"stop_sequences", Json::array({"S"})},
                  {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}},
                  {"tools", Json::array({{{"name", "f"}, {"input_schema", {{"type", "object"}}}}})}};
  const ApiRequest out = parse_messages_request(body, *engine_);
  const Json& got = *out.generate.chat->messages;
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[1]["reasoning_content"], "t");
  EXPECT_EQ(got[1]["tool_calls"][0]["function"], Json({{"name", "f"}, {"arguments", {{"k", 1}}}}));
  EXPECT_EQ(got[2], Json({{"role", "tool"}, {"tool_call_id", "i"}, {"content", "Error: r"}}));
  EXPECT_EQ(got[3]["content"], "more");
  EXPECT_EQ(out.generate.reasoning_budget, 9);
  EXPECT_TRUE(out.generate.stops_after_tool_call);
  EXPECT_EQ((*out.generate.chat->template_arguments)["enable_thinking"], true);
  EXPECT_EQ((*out.generate.chat->tools)[0]["function"]["parameters"], Json({{"type", "object"}}));
}

TEST_F(Requests, BadAnthropicFieldsAreNamed) {
  const auto refused = [&](const std::string& name, Json value) {
    Json body{{"max_tokens", 5}, {"messages", kHello}};
    body[name] = std::move(value);
    return refusal(parse_messages_request, body);
  };
  EXPECT_THAT(refusal(parse_messages_request, {{"messages", kHello}}),
              HasSubstr("max_tokens: expected an integer of at least 1"));
  EXPECT_THAT(refused("mtp_block_size", 999999999999),
              HasSubstr("mtp_block_size: expected an integer from 2 to 2147483647, got 999999999999"));
  EXPECT_EQ(refused("mtp_block_size", 2147483647), "accepted");
  EXPECT_EQ(refusal(parse_count_request, {{"messages", kHello}}), "accepted");
  EXPECT_THAT(refused("thinking", {{"type", "enabled"}}), HasSubstr("thinking.budget_tokens"));
  EXPECT_THAT(refused("tool_choice", {{"type", "any"}}), HasSubstr("tool_choice: expected tools beside it"));
  EXPECT_THAT(refused("tools", Json::array({{{"type", "web_search_20250305"}, {"name", "web_search"}}})),
              HasSubstr("tools[0].type"));
  EXPECT_THAT(refused("stop_sequences", Json::array({""})), HasSubstr("stop_sequences"));
  const Json image{{"type", "image"}, {"source", {{"type", "base64"}}}};
  EXPECT_THAT(
      refused("messages", Json::array({{{"role", "user"}, {"content", Json::array({image})}}})),
      HasSubstr("messages[0].content[0].type: expected a text part (this model is served without vision"));
}

TEST_F(Requests, ResponsesItemsBecomeMessages) {
  const Json input =
      Json::array({{{"role", "user"}, {"content", Json::array({{{"type", "input_text"}, {"text", "q"}}})}},
                   {{"type", "reasoning"},
                    {"id", "rs"},
                    {"summary", Json::array()},
                    {"content", Json::array({{{"type", "reasoning_text"}, {"text", "t"}}})}},
                   {{"type", "message"},
                    {"role", "assistant"},
                    {"content", Json::array({{{"type", "output_text"}, {"text", "a"}}})}},
                   {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{\"k\":1}"}},
                   {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "r"}}});
  const Json body{
      {"input", input},
      {"instructions", "be brief"},
      {"max_output_tokens", 9},
      {"store", false},
      {"tools", Json::array({{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}}})}};
  const ApiRequest out = parse_responses_request(body, *engine_);
  const Json& got = *out.generate.chat->messages;
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0]["content"], "be brief");
  EXPECT_EQ(got[2]["reasoning_content"], "t");
  EXPECT_EQ(got[2]["content"], "a");
  EXPECT_EQ(got[2]["tool_calls"][0]["function"]["arguments"], Json({{"k", 1}}));
  EXPECT_EQ(got[3]["role"], "tool");
  EXPECT_EQ((*out.generate.chat->tools)[0]["function"]["name"], "f");
  EXPECT_EQ(out.generate.max_tokens, 9);
  EXPECT_TRUE(out.ignored.empty());
}

TEST_F(Requests, BadResponsesFieldsAreNamed) {
  // By the place where the client put them, not where they end up.
  const Json call{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{oops"}};
  EXPECT_THAT(refusal(parse_responses_request, {{"input", Json::array({kHello[0], kHello[0], call, call})}}),
              HasSubstr("input[2].arguments: expected a JSON object as text"));
  EXPECT_THAT(refusal(parse_responses_request,
                      {{"input", "x"}, {"tools", Json::array({{{"type", "function"}, {"name", "a b"}}})}}),
              HasSubstr("tools[0].name: expected 1 to 128 letters"));
  EXPECT_THAT(refusal(parse_responses_request, {{"input", 5}}),
              HasSubstr("input: expected a string or a list of items"));
  EXPECT_THAT(refusal(parse_responses_request, {{"input", "x"}, {"previous_response_id", "resp_1"}}),
              HasSubstr("previous_response_id"));
  EXPECT_THAT(refusal(parse_responses_request, {{"input", Json::array({{{"type", "web_search_call"}}})}}),
              HasSubstr("input[0].type"));
  EXPECT_THAT(refusal(parse_responses_request, {{"input", "x"}, {"truncation", "auto"}}),
              HasSubstr("truncation"));
}

}  // namespace
}  // namespace mererun
