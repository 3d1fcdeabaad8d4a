// One request, one answer: drafted or not, streamed or whole, alone or one of eight.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/server/live_service.h"

namespace mererun {
namespace {

using testing::json_of;
using testing::LiveService;
using Json = nlohmann::ordered_json;

constexpr int kRequests = 200;
constexpr std::size_t kAtOnce = 8;

const Json kSchema = {{"type", "object"},
                      {"properties",
                       {{"name", {{"type", "string"}, {"maxLength", 6}}},
                        {"n", {{"type", "integer"}, {"minimum", -3}, {"maximum", 40}}}}},
                      {"required", {"name", "n"}},
                      {"additionalProperties", false}};
const Json kTool = {{"type", "function"}, {"function", {{"name", "look"}, {"parameters", kSchema}}}};

/// Plain chats, tools offered and demanded, JSON, stop strings, unicode, log-probabilities, thinking.
Json request(int i) {
  static const char* const kTexts[] = {"What is 12 + 30?", "你好，世界", "emoji 👩‍👩‍👧 and é",
                                       "def f(x):\n\treturn", "\x01\x1b control"};
  static const double kTemperatures[] = {0, 0.8, 1.5};
  Json body{{"messages",
             Json::array({{{"role", "user"}, {"content", fmt::format("{} {}", kTexts[i % 5], i / 5)}}})},
            {"temperature", kTemperatures[i % 3]},
            {"seed", i},
            {"max_tokens", 24}};
  switch (i % 8) {
    case 0: body["stop"] = Json::array({"e", "ing"}); break;
    case 1: body["tools"] = Json::array({kTool}); break;
    case 2:
      body["tools"] = Json::array({kTool});
      body["tool_choice"] = "required";
      body["max_tokens"] = 60;
      break;
    case 3:
      body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", kSchema}}}};
      body["max_tokens"] = 60;
      break;
    case 4:
      body["logprobs"] = true;
      body["top_logprobs"] = 2;
      break;
    case 5: body["chat_template_kwargs"] = {{"enable_thinking", true}}; break;
    case 6:
      body["presence_penalty"] = 1.5;
      body["repetition_penalty"] = 1.2;
      break;
    default: body["response_format"] = {{"type", "json_object"}};
  }
  return body;
}

/// The message that the chunks of a stream make up, its log-probabilities and its end.
Json joined(const std::string& stream) {
  Json message{{"role", "assistant"}, {"content", ""}}, logprobs, finish;
  std::string reasoning;
  for (const Json& event : testing::events_of(stream)) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    message["content"] = message["content"].get<std::string>() + delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    for (Json call : delta.value("tool_calls", Json::array())) {
      call.erase("index");
      message["tool_calls"].push_back(call);
    }
    if (!choice["logprobs"].is_null())
      for (const Json& row : choice["logprobs"]["content"]) logprobs["content"].push_back(row);
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (message["content"] == "" && message.contains("tool_calls")) message["content"] = nullptr;
  return {{"message", message}, {"logprobs", logprobs}, {"finish", finish}};
}

Json whole(const HttpResponse& response) {
  const Json choice = json_of(response)["choices"][0];
  return {
      {"message", choice["message"]}, {"logprobs", choice["logprobs"]}, {"finish", choice["finish_reason"]}};
}

/// Members in one order.
nlohmann::json sorted(const Json& value) { return nlohmann::json::parse(value.dump()); }

TEST(Identity, TwoHundredRequestsInEveryCircumstance) {
  const testing::TempFolder temp;
  const auto folder = testing::talking_checkpoint(temp);
  std::vector<nlohmann::json> want;
  {
    LiveService alone(Engine::load(testing::talking_options(folder)), {.max_active = 1});
    for (int i = 0; i < kRequests; ++i) {
      Json body = request(i);
      body["speculation"] = "off";
      const HttpResponse response = alone.post("/v1/chat/completions", body);
      ASSERT_EQ(response.status, 200) << response.body;
      want.push_back(sorted(whole(response)));
    }
  }
  LiveService busy(Engine::load(testing::talking_options(folder)), {.max_active = static_cast<int>(kAtOnce)});
  for (const bool streams : {false, true}) {
    std::vector<std::shared_ptr<testing::RecordedExchange>> answers;
    for (int i = 0; i < kRequests; ++i) {
      Json body = request(i);
      body["speculation"] = "on";
      body["stream"] = streams;
      answers.push_back(busy.send("POST", "/v1/chat/completions", body.dump()));
      // Always eight at once: the oldest one is waited for.
      if (answers.size() >= kAtOnce) answers[answers.size() - kAtOnce]->wait();
    }
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const HttpResponse response = answers[i]->wait();
      EXPECT_EQ(sorted(streams ? joined(response.body) : whole(response)), want[i])
          << i << (streams ? " streamed" : " whole");
    }
  }
}

}  // namespace
}  // namespace mererun
