// What a client gets for given output of the model: tool calls, reasoning, stop strings, in every API, whole
// and streamed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/chat_reply.h"
#include "server/completion.h"
#include "server/messages_reply.h"
#include "server/responses_reply.h"
#include "tests/server/live_service.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using Kind = OutputPiece::Kind;

const std::shared_ptr<const Json> kTools = std::make_shared<const Json>(
    Json::array({{{"type", "function"},
                  {"function",
                   {{"name", "look"},
                    {"parameters",
                     {{"type", "object"},
                      {"properties", {{"q", {{"type", "string"}}}, {"n", {{"type", "integer"}}}}}}}}}}}));

/// Two calls behind reasoning and text, as a model writes them.
const std::string kOutput =
    "I look.\n</think>\n\nSure, "
    "\xe4\xbd\xa0.\n<tool_call>\n<function=look>\n<parameter=q>\n42\n</parameter>\n<parameter=n>\n7\n"
    "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=look>\n<parameter=q>\n{\"a\": "
    "1}\n</parameter>\n"
    "</function>\n</tool_call>";
const std::string kFirstArguments = R"({"q":"42","n":7})";
const std::string kSecondArguments = R"({"q":"{\"a\": 1}"})";

class Replies : public testing::WithTalkingEngine {
 protected:
  using Make = std::unique_ptr<Reply> (*)(ReplyContext, const ApiRequest&);

  static ReplyContext context(std::shared_ptr<HttpExchange> exchange) {
    return {.exchange = std::move(exchange),
            .id = "id",
            .created = 7,
            .model = "m",
            .system_fingerprint = "f",
            .tokenizer = engine_->shared_tokenizer()};
  }

  /// Feeds a text to a reply in steps of at most `step` bytes that cut no character.
  static HttpResponse answer(Make make, bool streams, const std::string& text, std::size_t step,
                             FinishReason finish = FinishReason::kStop, ApiRequest request = {}) {
    auto exchange = std::make_shared<testing::RecordedExchange>();
    request.stream = streams;
    request.include_usage = true;
    const auto reply = make(context(exchange), request);
    GenerateRequest prompt;
    prompt.ids = {5, 6, 7};
    const class Run run(*engine_, std::move(prompt));
    OutputParser parser({.starts_in_reasoning = true, .tools = kTools});
    GenerateResult result;
    result.prompt_ids = {5, 6, 7};
    result.ids = engine_->tokenizer().encode(text);
    result.finish = finish;
    std::vector<OutputPiece> pieces;
    const auto give = [&] {
      reply->on_step(run, pieces);
      for (const OutputPiece& piece : pieces) {
        if (piece.kind == Kind::kReasoning) result.reasoning += piece.text;
        if (piece.kind == Kind::kContent) result.content += piece.text;
        if (piece.kind == Kind::kToolCall) result.tool_calls.push_back(piece);
      }
      pieces.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = std::min(text.size(), at + step);
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      parser.feed(std::string_view(text).substr(at, end - at), pieces);
      give();
      at = end;
    }
    parser.finish(finish == FinishReason::kLength, pieces);
    give();
    reply->on_finish(result, {});
    return exchange->wait();
  }
};

TEST_F(Replies, AWholeChatHasReasoningContentAndCalls) {
  const Json choice = testing::json_of(answer(make_chat_reply, false, kOutput, 1000))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], "I look.");
  EXPECT_EQ(choice["message"]["content"], "Sure, \xe4\xbd\xa0.");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0], Json({{"id", "call_id_0"},
                            {"type", "function"},
                            {"function", {{"name", "look"}, {"arguments", kFirstArguments}}}}));
  EXPECT_EQ(calls[1]["function"]["arguments"], kSecondArguments);
}

/// However many bytes a round brings, the deltas join to the whole message, and each call comes once.
TEST_F(Replies, AStreamedChatDoesNotDependOnItsSteps) {
  for (std::size_t step = 1; step < 40; ++step) {
    const HttpResponse stream = answer(make_chat_reply, true, kOutput, step);
    std::string reasoning, content;
    std::vector<std::string> arguments;
    Json finish;
    for (const Json& event : testing::events_of(stream.body)) {
      if (event["choices"].empty()) continue;
      const Json& delta = event["choices"][0]["delta"];
      reasoning += delta.value("reasoning_content", "");
      content += delta.value("content", "");
      if (delta.contains("tool_calls")) {
        EXPECT_EQ(delta["tool_calls"][0]["index"], arguments.size()) << step;
        arguments.push_back(delta["tool_calls"][0]["function"]["arguments"]);
      }
      if (!event["choices"][0]["finish_reason"].is_null()) finish = event["choices"][0]["finish_reason"];
    }
    EXPECT_EQ(reasoning, "I look.") << step;
    EXPECT_EQ(content, "Sure, \xe4\xbd\xa0.") << step;
    EXPECT_THAT(arguments, ElementsAre(kFirstArguments, kSecondArguments)) << step;
    EXPECT_EQ(finish, "tool_calls") << step;
    EXPECT_THAT(stream.body, ::testing::EndsWith("data: [DONE]\n\n")) << step;
  }
}

TEST_F(Replies, ACallCutByTheBudgetIsDroppedAndTheFinishStaysLength) {
  const std::string cut = "x</think>\n\nSure.\n<tool_call>\n<function=look>\n<parameter=q>\n4";
  const Json choice =
      testing::json_of(answer(make_chat_reply, false, cut, 5, FinishReason::kLength))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], "Sure.");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

TEST_F(Replies, DoubledAndMissingClosingTagsEndNormally) {
  for (const char* call : {"<tool_call>\n<function=look>\n<parameter=q>\nv\n</parameter>\n</parameter>\n</"
                           "function>\n</tool_call>",
                           "<tool_call>\n<function=look>\n<parameter=q>\nv\n</function>\n</tool_call>"}) {
    for (const bool streams : {false, true}) {
      const HttpResponse got = answer(make_chat_reply, streams, std::string("x</think>\n\n") + call, 3);
      EXPECT_THAT(got.body, HasSubstr(R"("arguments":"{\"q\":\"v\"}")")) << call;
      EXPECT_THAT(got.body, HasSubstr(R"("finish_reason":"tool_calls")")) << call;
    }
  }
}

TEST_F(Replies, AWholeAnthropicMessageHasItsBlocksInOrder) {
  const Json body = testing::json_of(answer(make_messages_reply, false, kOutput, 4));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  const Json& blocks = body["content"];
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0], Json({{"type", "thinking"}, {"thinking", "I look."}, {"signature", ""}}));
  EXPECT_EQ(blocks[1], Json({{"type", "text"}, {"text", "Sure, \xe4\xbd\xa0."}}));
  EXPECT_EQ(blocks[2], Json({{"type", "tool_use"},
                             {"id", "toolu_id_0"},
                             {"name", "look"},
                             {"input", {{"q", "42"}, {"n", 7}}}}));
}

TEST_F(Replies, AnthropicEventsRebuildTheMessage) {
  const Json whole = testing::json_of(answer(make_messages_reply, false, kOutput, 4));
  for (const std::size_t step : {1u, 3u, 17u, 1000u}) {
    const HttpResponse stream = answer(make_messages_reply, true, kOutput, step);
    Json blocks = Json::array(), stop;
    std::string partial;
    std::vector<std::string> types;
    for (const Json& event : testing::events_of(stream.body)) {
      const std::string type = event["type"];
      if (types.empty() || types.back() != type) types.push_back(type);
      if (type == "content_block_start") {
        EXPECT_EQ(event["index"], blocks.size());
        blocks.push_back(event["content_block"]);
        partial.clear();
      } else if (type == "content_block_delta") {
        Json& block = blocks.back();
        const Json& delta = event["delta"];
        const std::string kind = delta["type"];
        if (kind == "text_delta")
          block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
        if (kind == "thinking_delta")
          block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
        if (kind == "input_json_delta") partial += delta["partial_json"].get<std::string>();
      } else if (type == "content_block_stop" && blocks.back()["type"] == "tool_use") {
        blocks.back()["input"] = Json::parse(partial);
      } else if (type == "message_delta") {
        stop = event["delta"]["stop_reason"];
      }
    }
    EXPECT_EQ(blocks, whole["content"]) << step;
    EXPECT_EQ(stop, "tool_use");
    EXPECT_EQ(types.front(), "message_start");
    EXPECT_EQ(types.back(), "message_stop");
  }
}

TEST_F(Replies, AnthropicNamesTheStopSequence) {
  ApiRequest request;
  request.stops = {"zz", "END"};
  // The ids hold the stop string; the text that left does not.
  auto exchange = std::make_shared<testing::RecordedExchange>();
  const auto reply = make_messages_reply(context(exchange), request);
  GenerateResult result;
  result.ids = engine_->tokenizer().encode("some textEND");
  result.finish = FinishReason::kStop;
  reply->on_finish(result, {});
  const Json body = testing::json_of(exchange->wait());
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "END");
  EXPECT_EQ(matched_stop(engine_->tokenizer(), engine_->tokenizer().encode("some text"), request.stops),
            nullptr);
}

TEST_F(Replies, ResponsesEventsRebuildTheResponse) {
  const Json whole = testing::json_of(answer(make_responses_reply, false, kOutput, 4));
  ASSERT_EQ(whole["output"].size(), 4u);
  EXPECT_EQ(whole["output"][0]["type"], "reasoning");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "Sure, \xe4\xbd\xa0.");
  EXPECT_EQ(whole["output"][2]["arguments"], kFirstArguments);
  EXPECT_EQ(whole["status"], "completed");
  for (const std::size_t step : {1u, 9u, 1000u}) {
    const HttpResponse stream = answer(make_responses_reply, true, kOutput, step);
    const auto events = testing::events_of(stream.body);
    std::string text;
    for (std::size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i]["sequence_number"], i);
      if (events[i]["type"] == "response.output_text.delta") text += events[i]["delta"].get<std::string>();
    }
    EXPECT_EQ(text, "Sure, \xe4\xbd\xa0.");
    EXPECT_EQ(events.front()["type"], "response.created");
    EXPECT_EQ(events.back()["type"], "response.completed");
    EXPECT_EQ(events.back()["response"]["output"], whole["output"]) << step;
  }
}

/// A page of another site could not read what went wrong without them.
TEST_F(Replies, AFailureCarriesTheHeadersOfTheRequest) {
  for (const Make make :
       {make_chat_reply, make_completion_reply, make_messages_reply, make_responses_reply}) {
    auto exchange = std::make_shared<testing::RecordedExchange>();
    ReplyContext asked = context(exchange);
    asked.headers = {{"Access-Control-Allow-Origin", "https://app.example"}};
    make(std::move(asked), {})->on_error(ApiError::later(503, "memory: no", 5));
    const HttpResponse failed = exchange->wait();
    EXPECT_EQ(failed.status, 503);
    ASSERT_EQ(failed.headers.size(), 2u);
    EXPECT_EQ(failed.headers[0].name, "Retry-After");
    EXPECT_EQ(failed.headers[1].value, "https://app.example");
  }
}

TEST_F(Replies, LogprobsOfHalfACharacterAreValidTextWithBytes) {
  const auto id = engine_->tokenizer().find_token("\xe4");
  ASSERT_TRUE(id);
  const Json row = token_logprob_json(engine_->tokenizer(),
                                      {.id = *id, .logprob = -std::numeric_limits<double>::infinity()});
  EXPECT_EQ(dump(row), "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-9999.0,\"bytes\":[228]}");
}

}  // namespace
}  // namespace mererun
