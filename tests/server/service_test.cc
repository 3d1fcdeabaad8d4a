// Whole requests through the service, without sockets, on a made-up model that answers noise.
#include "server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "engine/qualification_receipt.h"
#include "tests/server/live_service.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::json_of;
using testing::LiveService;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

const Json kHello = Json::array({{{"role", "user"}, {"content", "hello there"}}});

Json chat(Json more = Json::object()) {
  Json body{{"messages", kHello}, {"temperature", 0}, {"max_tokens", 24}};
  body.update(more);
  return body;
}

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : folder_(testing::talking_checkpoint(temp_)) {}
  std::unique_ptr<LiveService> live(SchedulerOptions scheduler = {.max_active = 4},
                                    ServiceOptions options = {}) {
    return std::make_unique<LiveService>(Engine::load(testing::talking_options(folder_)), scheduler,
                                         std::move(options));
  }
  testing::TempFolder temp_;
  std::filesystem::path folder_;
};

TEST_F(ServiceTest, IsLoadingThenReadyOrFailed) {
  Metrics metrics;
  Service service({}, metrics);
  const auto get = [&](const std::string& path) {
    auto exchange = std::make_shared<testing::RecordedExchange>();
    service.handle({.method = "GET", .path = path}, exchange);
    return exchange->wait();
  };
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(json_of(get("/health"))["status"], "loading");
  EXPECT_EQ(get("/v1/models").status, 503);
  service.set_failed("no such folder");
  EXPECT_EQ(json_of(get("/health")), Json({{"status", "failed"}, {"message", "no such folder"}}));
  EXPECT_EQ(get("/").status, 200);
  const auto ready = live();
  EXPECT_EQ(json_of(ready->get("/health")), Json({{"status", "ok"}}));
}

TEST_F(ServiceTest, WaitingForTheModelSpendsNoRate) {
  Metrics metrics;
  Service service({.rate_limit_per_minute = 2}, metrics);
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto refused = service.screen({.method = "POST", .path = "/v1/chat/completions"});
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->status, 503);
    EXPECT_EQ(refused->headers.front().name, "Retry-After");
  }
}

TEST_F(ServiceTest, RefusesBeforeTheBodyIsRead) {
  const auto service = live({.max_active = 1}, {.api_key = "secret", .rate_limit_per_minute = 2});
  const std::vector<HttpHeader> key = {{"Authorization", "Bearer secret"}};
  const auto status = [&](const std::string& method, const std::string& path,
                          std::vector<HttpHeader> headers) {
    return service->send(method, path, "{}", std::move(headers))->wait();
  };
  EXPECT_EQ(status("POST", "/v1/nope", key).status, 404);
  EXPECT_EQ(status("GET", "/v1/models", {{"Authorization", "BEARER secret"}}).status, 200);
  const HttpResponse wrong = status("GET", "/v1/chat/completions", key);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.front().name, "Allow");
  EXPECT_EQ(wrong.headers.front().value, "POST");
  EXPECT_EQ(status("GET", "/health", {}).status, 200);
  EXPECT_EQ(status("GET", "/v1/models", {}).status, 401);
  EXPECT_EQ(status("GET", "/v1/models", {{"Authorization", "Bearer secre"}}).status, 401);
  EXPECT_EQ(status("GET", "/v1/models", {{"x-api-key", "secret"}}).status, 200);
  EXPECT_EQ(json_of(status("POST", "/v1/messages", {}))["error"]["type"], "authentication_error");
  EXPECT_EQ(status("GET", "/v1/models", {{"x-api-key", "secret"}, {"Origin", "http://evil.example"}}).status,
            403);
  EXPECT_EQ(
      status("POST", "/v1/chat/completions", {{"x-api-key", "secret"}, {"Content-Encoding", "gzip"}}).status,
      415);
  EXPECT_EQ(status("POST", "/v1/chat/completions", key).status, 400);
  EXPECT_EQ(status("POST", "/v1/chat/completions", key).status, 400);
  const HttpResponse limited = status("POST", "/v1/chat/completions", key);
  EXPECT_EQ(limited.status, 429);
  EXPECT_EQ(limited.headers.front().name, "Retry-After");
  EXPECT_EQ(json_of(limited)["error"]["type"], "rate_limit_error");
}

/// Base addresses that have "/v1" twice or lack it are the commonest mistake of all.
TEST_F(ServiceTest, AnUnknownPathNamesTheOneThatWasMeant) {
  const auto service = live();
  const auto message = [&](const char* path) {
    const HttpResponse refused = service->post(path, Json::object());
    EXPECT_EQ(refused.status, 404) << path;
    return json_of(refused)["error"]["message"].get<std::string>();
  };
  for (const char* path : {"/chat/completions", "/v1/v1/chat/completions", "/v1/chat/completions/",
                           "/api/v1/chat/completions", "//v1/chat/completions"})
    EXPECT_THAT(message(path), ::testing::StartsWith("path: expected /v1/chat/completions, got \"")) << path;
  EXPECT_THAT(message("/completions"), HasSubstr("expected /v1/completions,"));
  EXPECT_THAT(message("/models/"), HasSubstr("expected /v1/models,"));
  EXPECT_THAT(message("/v1/tokenize"), HasSubstr("expected /tokenize,"));
  for (const char* path : {"/v1/embeddings", "/v1", "/x/", "/favicon.ico"})
    EXPECT_THAT(message(path), HasSubstr("expected a known one,")) << path;
}

/// Names of a body stand in a header of the answer: one line of a bounded length, whatever they are.
TEST_F(ServiceTest, IgnoredFieldsAreNamedInABoundedHeader) {
  const auto service = live();
  const auto header = [&](const Json& more) {
    const HttpResponse answer = service->post("/v1/chat/completions", chat(more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.headers.front().name, "X-MereRun-Ignored");
    return answer.headers.front().value;
  };
  EXPECT_EQ(header({{"a", 1}, {"b", 2}}), "a, b");
  EXPECT_EQ(header({{std::string(100'000, 'k'), 1}}), "1 more");
  Json many = Json::object();
  for (int i = 0; i < 5000; ++i) many["field" + std::to_string(i)] = i;
  const std::string listed = header(many);
  EXPECT_LT(listed.size(), 1100u);
  EXPECT_THAT(listed, ::testing::StartsWith("field0, field1, "));
  EXPECT_THAT(listed, ::testing::EndsWith(" more"));
}

TEST_F(ServiceTest, OtherSitesMayCallOnlyWhereAskedFor) {
  const auto closed = live();
  EXPECT_EQ(closed->send("OPTIONS", "/v1/models")->wait().status, 405);
  const std::vector<HttpHeader> own = {{"Origin", "http://localhost:8080"}, {"Host", "localhost:8080"}};
  EXPECT_EQ(closed->send("GET", "/v1/models", {}, own)->wait().status, 200);
  // A name that an attacker's DNS points here is its own site too, and a page's own GET names no origin.
  const std::vector<HttpHeader> rebound = {{"Origin", "http://evil.example"}, {"Host", "evil.example"}};
  EXPECT_EQ(closed->send("GET", "/v1/models", {}, rebound)->wait().status, 403);
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "127.evil.example"})
    EXPECT_EQ(closed->send("GET", "/runtime/status", {}, {{"Host", host}})->wait().status, 403) << host;
  for (const char* host : {"localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080", "[::1]"})
    EXPECT_EQ(closed->send("GET", "/runtime/status", {}, {{"Host", host}})->wait().status, 200) << host;
  const auto keyed = live({}, {.api_key = "secret"});  // reached by its name in a network
  EXPECT_EQ(
      keyed->send("GET", "/v1/models", {}, {{"Host", "server.lan"}, {"x-api-key", "secret"}})->wait().status,
      200);
  const auto open = live({}, {.cors_origin = "https://app.example"});
  const HttpResponse preflight =
      open->send("OPTIONS", "/v1/chat/completions", {},
                 {{"Origin", "https://app.example"},
                  {"Access-Control-Request-Headers", "authorization,content-type,x-stainless-lang"}})
          ->wait();
  EXPECT_EQ(preflight.status, 204);
  // What a client's library adds to its requests is allowed too.
  EXPECT_THAT(preflight.headers,
              Contains(AllOf(Field(&HttpHeader::name, "Access-Control-Allow-Headers"),
                             Field(&HttpHeader::value, "authorization,content-type,x-stainless-lang"))));
  const HttpResponse answer =
      open->send("GET", "/v1/models", {}, {{"Origin", "https://app.example"}})->wait();
  EXPECT_EQ(answer.headers.front().value, "https://app.example");
  EXPECT_EQ(open->send("GET", "/v1/models", {}, {{"Origin", "https://other.example"}})->wait().status, 403);
}

TEST_F(ServiceTest, ListsItsModel) {
  const auto service = live();
  const Json list = json_of(service->get("/v1/models"));
  EXPECT_EQ(list["data"][0]["id"], "local:talking");
  EXPECT_EQ(json_of(service->get("/v1/models/local%3Atalking"))["object"], "model");
  const Json refused = json_of(service->get("/v1/models/other"));
  EXPECT_EQ(refused["error"]["param"], "model");
  EXPECT_EQ(refused, json_of(service->post("/v1/chat/completions", chat({{"model", "other"}}))));
}

TEST_F(ServiceTest, TokenizesAndBack) {
  const auto service = live();
  const Json ids = json_of(service->post("/tokenize", {{"text", "def f(x): # é\x01"}}));
  EXPECT_EQ(ids["count"], ids["tokens"].size());
  EXPECT_EQ(json_of(service->post("/detokenize", {{"tokens", ids["tokens"]}}))["text"], "def f(x): # é\x01");
  EXPECT_EQ(service->post("/detokenize", {{"tokens", {8192}}}).status, 400);
  EXPECT_EQ(service->post("/tokenize", {{"text", 5}}).status, 400);
}

TEST_F(ServiceTest, AnswersAChatInItsForm) {
  const auto service = live();
  const HttpResponse response =
      service->post("/v1/chat/completions", chat({{"logprobs", true}, {"top_logprobs", 2}, {"zzz", 1}}));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.front().value, "zzz");
  const Json body = json_of(response);
  EXPECT_EQ(body["id"], "chatcmpl-id");
  EXPECT_EQ(body["created"], 7);
  EXPECT_EQ(body["usage"]["completion_tokens"], 24);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  const Json& logprobs = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(logprobs.size(), 24u);
  EXPECT_EQ(logprobs[0]["top_logprobs"].size(), 2u);
  for (const char* name :
       {"route", "admissionReason", "rounds", "draftedTokens", "acceptedDraftTokens", "draftHistoryTokens"})
    EXPECT_TRUE(body["acceleration"].contains(name)) << name;
  EXPECT_EQ(body["prefix_cache"]["outcome"], "miss");
  const Json again = json_of(service->post("/v1/chat/completions", chat()));
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], again["usage"]["prompt_tokens"]);
  EXPECT_EQ(again["choices"][0]["message"], body["choices"][0]["message"]);
}

/// The deltas of a stream join to the unstreamed message; its log-probabilities are the same.
TEST_F(ServiceTest, AStreamJoinsToTheWhole) {
  const auto service = live();
  for (const double temperature : {0.0, 1.0}) {
    Json body = chat({{"logprobs", true},
                      {"max_tokens", 60},
                      {"temperature", temperature},
                      {"seed", 5},
                      {"stop", Json::array({"zzzz"})},
                      {"chat_template_kwargs", {{"enable_thinking", temperature > 0}}}});
    const Json whole = json_of(service->post("/v1/chat/completions", body));
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const HttpResponse stream = service->post("/v1/chat/completions", body);
    EXPECT_THAT(stream.body, ::testing::EndsWith("data: [DONE]\n\n"));
    std::string content, reasoning;
    Json logprobs = Json::array(), usage, finish;
    for (const Json& event : testing::events_of(stream.body)) {
      if (event["choices"].empty()) {
        usage = event["usage"];
        EXPECT_TRUE(event.contains("acceleration"));
        continue;
      }
      const Json& choice = event["choices"][0];
      content += choice["delta"].value("content", "");
      reasoning += choice["delta"].value("reasoning_content", "");
      if (!choice["logprobs"].is_null())
        for (const Json& each : choice["logprobs"]["content"]) logprobs.push_back(each);
      if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    }
    const Json& want = whole["choices"][0];
    EXPECT_EQ(content, want["message"]["content"].get<std::string>());
    EXPECT_EQ(reasoning, want["message"].value("reasoning_content", ""));
    EXPECT_EQ(logprobs, want["logprobs"]["content"]);
    EXPECT_EQ(finish, want["finish_reason"]);
    EXPECT_EQ(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
  }
}

TEST_F(ServiceTest, AResponsesStreamCarriesTheLogprobsOfTheWhole) {
  const auto service = live();
  Json body{
      {"input", "hello"}, {"temperature", 1}, {"seed", 2}, {"max_output_tokens", 30}, {"top_logprobs", 2}};
  const Json whole = json_of(service->post("/v1/responses", body))["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(whole.size(), 30u);
  body["stream"] = true;
  Json deltas = Json::array(), done;
  for (const Json& event : testing::events_of(service->post("/v1/responses", body).body)) {
    if (event["type"] == "response.output_text.delta")
      for (const Json& row : event["logprobs"]) deltas.push_back(row);
    if (event["type"] == "response.output_text.done") done = event["logprobs"];
  }
  EXPECT_EQ(done, whole);
  ASSERT_GT(deltas.size(), 0u);
  ASSERT_LE(deltas.size(), done.size());  // those of text that was held back to the end come with that event
  deltas.insert(deltas.end(), done.begin() + static_cast<std::ptrdiff_t>(deltas.size()), done.end());
  EXPECT_EQ(deltas, whole);
}

TEST_F(ServiceTest, DraftingChangesNoByteOfABody) {
  const auto service = live();
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/v1/completions", "/v1/responses"}) {
    for (const int temperature : {0, 1}) {
      Json body{{"temperature", temperature}, {"max_tokens", 40}, {"seed", 3}};
      const std::string form = path;
      if (form == "/v1/completions")
        body["prompt"] = "hello";
      else if (form == "/v1/responses") {
        body.erase("max_tokens");
        body["max_output_tokens"] = 40;
        body["input"] = "hello";
      } else
        body["messages"] = kHello;
      body["speculation"] = "on";
      const Json on = json_of(service->post(path, body));
      body["speculation"] = "off";
      const Json off = json_of(service->post(path, body));
      ASSERT_TRUE(on.contains("acceleration")) << on;
      EXPECT_NE(on["acceleration"]["route"], off["acceleration"]["route"]) << path;
      EXPECT_EQ(testing::without_extensions(on), testing::without_extensions(off)) << path;
    }
  }
}

/// Constrained output is valid whatever the model would rather say, and drafting does not change it.
TEST_F(ServiceTest, ConstrainedOutputIsValidAndDraftingChangesNoByte) {
  const auto service = live();
  const Json schema{
      {"type", "object"},
      {"properties",
       {{"a", {{"type", "integer"}, {"minimum", 0}, {"maximum", 50}}}, {"b", {{"enum", {"x", "y"}}}}}},
      {"required", {"a", "b"}},
      {"additionalProperties", false}};
  const Json tool{{"type", "function"}, {"function", {{"name", "look"}, {"parameters", schema}}}};
  for (const double temperature : {0.0, 1.5}) {
    Json formed = chat({{"temperature", temperature}, {"seed", 2}, {"max_tokens", 100}});
    Json calling = formed;
    formed["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
    calling["tools"] = Json::array({tool});
    calling["tool_choice"] = "required";
    calling["parallel_tool_calls"] = false;
    for (Json* body : {&formed, &calling}) {
      (*body)["speculation"] = "on";
      const Json on = json_of(service->post("/v1/chat/completions", *body));
      (*body)["speculation"] = "off";
      EXPECT_EQ(testing::without_extensions(on),
                testing::without_extensions(json_of(service->post("/v1/chat/completions", *body))));
      const Json& choice = on["choices"][0];
      const bool calls = body == &calling;
      ASSERT_EQ(choice["finish_reason"], calls ? "tool_calls" : "stop") << on;
      const Json value =
          Json::parse(calls ? choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()
                            : choice["message"]["content"].get<std::string>());
      EXPECT_TRUE(value["a"].is_number_integer() && value["a"] >= 0 && value["a"] <= 50) << value;
      EXPECT_TRUE(value["b"] == "x" || value["b"] == "y") << value;
    }
  }
}

/// A budget of thinking closes it by force, at the same token with and without drafts.
TEST_F(ServiceTest, AThinkingBudgetEndsReasoning) {
  const auto service = live();
  for (const char* speculation : {"on", "off"}) {
    const Json body{{"messages", kHello},         {"max_tokens", 30},
                    {"temperature", 1},           {"seed", 1},
                    {"speculation", speculation}, {"thinking", {{"type", "enabled"}, {"budget_tokens", 7}}}};
    const Json message = json_of(service->post("/v1/messages", body));
    EXPECT_EQ(message["content"][0]["type"], "thinking") << message;
    ASSERT_EQ(message["content"].size(), 2u) << message;
    EXPECT_EQ(message["content"][1]["type"], "text");
    EXPECT_EQ(message["usage"]["output_tokens"], 30);
  }
}

TEST_F(ServiceTest, TheContextIsALimitWithBothCounts) {
  EngineOptions options = testing::talking_options(folder_);
  options.context_limit = 64;
  LiveService service(Engine::load(options));
  const auto with_ids = [&](int count) {
    return service.post("/v1/completions", {{"prompt", std::vector<int>(static_cast<std::size_t>(count), 5)},
                                            {"max_tokens", 2},
                                            {"temperature", 0}});
  };
  EXPECT_EQ(json_of(with_ids(63))["usage"]["completion_tokens"], 1);
  for (const int count : {64, 65}) {
    const HttpResponse refused = with_ids(count);
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(json_of(refused)["error"]["code"], "context_length_exceeded");
    EXPECT_THAT(json_of(refused)["error"]["message"].get<std::string>(),
                HasSubstr("fewer than 64 tokens (the context), got " + std::to_string(count)));
  }
}

TEST_F(ServiceTest, APromptThatDoesNotFitIsNamedAsItsApiNamesIt) {
  EngineOptions options = testing::talking_options(folder_);
  options.context_limit = 32;
  LiveService service(Engine::load(options));
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  const Json messages = Json::array({{{"role", "user"}, {"content", words}}});
  const auto param = [&](const char* path, const Json& body) {
    return json_of(service.post(path, body))["error"].value("param", "");
  };
  EXPECT_EQ(param("/v1/chat/completions", {{"messages", messages}}), "messages");
  EXPECT_EQ(param("/v1/completions", {{"prompt", words}}), "prompt");
  EXPECT_EQ(param("/v1/responses", {{"input", words}}), "input");
}

TEST_F(ServiceTest, TemplateErrorsAreTheClientsToRead) {
  const auto service = live();
  const Json body = chat({{"messages", Json::array({kHello[0], {{"role", "system"}, {"content", "late"}}})}});
  const HttpResponse refused = service->post("/v1/chat/completions", body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json_of(refused)["error"]["message"], "a system message must come first");
}

TEST_F(ServiceTest, ControlBytesInHistoryAreText) {
  const auto service = live();
  const Json messages =
      Json::array({kHello[0], {{"role", "tool"}, {"content", std::string("\x1b[0m\0x", 6)}}});
  EXPECT_EQ(service->post("/v1/chat/completions", chat({{"messages", messages}})).status, 200);
}

TEST_F(ServiceTest, CountsWhatAnthropicClientsAskFor) {
  const auto service = live();
  const Json body{{"messages", kHello}, {"max_tokens", 8}, {"temperature", 0}};
  const Json count = json_of(service->post("/v1/messages/count_tokens", body));
  const Json usage = json_of(service->post("/v1/messages", body))["usage"];
  EXPECT_EQ(count["input_tokens"],
            usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
  EXPECT_EQ(usage["output_tokens"], 8);
}

TEST_F(ServiceTest, MetricsAndStatusSayWhatHappened) {
  const auto service = live();
  service->post("/v1/chat/completions", chat());
  service->post("/v1/chat/completions", {{"messages", 5}});
  const std::string text = service->get("/metrics").body;
  EXPECT_THAT(
      text, HasSubstr("# TYPE mererun_generated_tokens_total counter\nmererun_generated_tokens_total 24\n"));
  EXPECT_THAT(text,
              HasSubstr("mererun_requests_total{route=\"/v1/chat/completions\",finish=\"length\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("mererun_http_responses_total{status=\"400\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("mererun_ttft_seconds_bucket{le=\"+Inf\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("mererun_inter_token_seconds_count 23\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE mererun_active_requests gauge\n"));
  const Json status = json_of(service->get("/runtime/status"));
  for (const char* name : {"model", "backend", "device", "exactness", "uptimeSeconds", "admission",
                           "prefixCache", "batching", "speculation", "memory", "overrides"})
    EXPECT_TRUE(status.contains(name)) << name;
  EXPECT_EQ(status["admission"]["active"], 0);
  EXPECT_EQ(status["prefixCache"]["misses"], 1);
  EXPECT_EQ(status["model"]["qualification"], "none");
}

TEST_F(ServiceTest, StatusNamesTheReceiptThatQualifiesTheModel) {
  const EngineOptions options = testing::talking_options(folder_);
  const auto engine = Engine::load(options);
  const std::string id = engine->resolved().id;
  const std::filesystem::path receipt = folder_ / receipt_file_name(id);
  std::ofstream(receipt) << Json{{"model", id},
                                 {"fingerprint", engine->fingerprint()},
                                 {"backend", engine->backend_name()},
                                 {"contractVersion", kNumericContractVersion},
                                 {"pass", true}};
  EXPECT_EQ(json_of(live()->get("/runtime/status"))["model"]["qualification"], receipt.string());
}

}  // namespace
}  // namespace mererun
