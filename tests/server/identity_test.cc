// One request, one answer: drafted or not, streamed or whole, alone or one of eight, in all eight ways.
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

/// A reply without what depends on circumstances: ids of its events, cache, times.
Json reply(Json message, Json logprobs, Json finish, const Json& usage) {
  return {{"message", std::move(message)},
          {"logprobs", std::move(logprobs)},
          {"finish", std::move(finish)},
          {"tokens", usage["completion_tokens"]},
          {"reasoning", usage["completion_tokens_details"]["reasoning_tokens"]}};
}

/// The message that the chunks of a stream make up, its log-probabilities and its end.
Json joined(const std::string& stream) {
  Json message{{"role", "assistant"}, {"content", ""}}, logprobs, finish, usage;
  std::string reasoning;
  for (const Json& event : testing::events_of(stream)) {
    if (event["choices"].empty()) {
      usage = event["usage"];
      continue;
    }
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
  return reply(std::move(message), std::move(logprobs), std::move(finish), usage);
}

Json whole(const HttpResponse& response) {
  const Json body = json_of(response);
  const Json& choice = body["choices"][0];
  return reply(choice["message"], choice["logprobs"], choice["finish_reason"], body["usage"]);
}

/// Members in one order.
nlohmann::json sorted(const Json& value) { return nlohmann::json::parse(value.dump()); }

/// All replies of one circumstance, in the order of the requests.
std::vector<nlohmann::json> replies(const std::filesystem::path& folder, std::size_t at_once, bool drafts,
                                    bool streams) {
  LiveService service(Engine::load(testing::talking_options(folder)),
                      {.max_active = static_cast<int>(at_once)});
  std::vector<std::shared_ptr<testing::RecordedExchange>> answers;
  for (int i = 0; i < kRequests; ++i) {
    Json body = request(i);
    body["speculation"] = drafts ? "on" : "off";
    if (streams) body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
    answers.push_back(service.send("POST", "/v1/chat/completions", body.dump()));
    // Always that many at once: the oldest one is waited for.
    if (answers.size() >= at_once) answers[answers.size() - at_once]->wait();
  }
  std::vector<nlohmann::json> out;
  for (const auto& answer : answers) {
    const HttpResponse response = answer->wait();
    EXPECT_EQ(response.status, 200) << response.body;
    out.push_back(sorted(streams ? joined(response.body) : whole(response)));
  }
  return out;
}

TEST(Identity, TwoHundredRequestsInEveryCircumstance) {
  const testing::TempFolder temp;
  const auto folder = testing::talking_checkpoint(temp);
  const auto want = replies(folder, 1, false, false);
  for (const std::size_t at_once : {std::size_t{1}, kAtOnce}) {
    for (const bool drafts : {false, true}) {
      for (const bool streams : {false, true}) {
        if (at_once == 1 && !drafts && !streams) continue;
        const auto got = replies(folder, at_once, drafts, streams);
        for (std::size_t i = 0; i < want.size(); ++i)
          EXPECT_EQ(got[i], want[i]) << i << ", at once " << at_once << ", drafts " << drafts << ", streams "
                                     << streams;
      }
    }
  }
}

}  // namespace
}  // namespace mererun
