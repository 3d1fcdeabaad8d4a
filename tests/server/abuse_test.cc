// Requests that mean harm or nothing at all: each gets one clear answer, and everybody else gets theirs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "server/chat_request.h"
#include "server/completion.h"
#include "server/messages_request.h"
#include "server/responses_request.h"
#include "server/server.h"
#include "tests/server/live_service.h"
#include "tests/server/socket_client.h"

namespace mererun {
namespace {

using ::testing::HasSubstr;
using testing::SocketClient;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

const char* const kSamples[] = {
    R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"x"}]},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
        {"role":"tool","tool_call_id":"c","content":"r"}],"temperature":0.5,"stop":["a"],"logprobs":true,"top_logprobs":2,
        "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto",
        "logit_bias":{"5":1},"stream":true,"stream_options":{"include_usage":true},"seed":3,"max_tokens":5})",
    R"({"max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"},{"role":"assistant",
        "content":[{"type":"thinking","thinking":"t","signature":""},{"type":"tool_use","id":"i","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"r"}]}]}],
        "tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto"},"thinking":{"type":"enabled","budget_tokens":9}})",
    R"({"input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},{"type":"function_call","call_id":"c","name":"f",
        "arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}],"instructions":"i","text":{"format":{"type":"text"}},
        "reasoning":{"effort":"low"},"tools":[{"type":"function","name":"f","parameters":{}}]})",
    R"({"prompt":[5,6],"max_tokens":3,"logprobs":2,"stop":"x","top_p":0.5})"};

/// Puts something else at a random place of a value.
void mutate(Json& value, std::mt19937& random) {
  static const std::vector<Json> kOthers = {nullptr,
                                            true,
                                            -1,
                                            0,
                                            1e300,
                                            18446744073709551615u,
                                            "",
                                            "\xf0\x9f\x8c\x8d",
                                            "auto",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({Json::array({1})}),
                                            {{"type", "text"}}};
  if (value.is_structured() && !value.empty() && random() % 4 != 0) {
    auto at = std::next(value.begin(), static_cast<std::ptrdiff_t>(random() % value.size()));
    if (random() % 8 == 0) {
      value.erase(at);
      return;
    }
    return mutate(*at, random);
  }
  value = kOthers[random() % kOthers.size()];
}

std::string mutated(const std::string& sample, std::mt19937& random) {
  Json value = Json::parse(sample);
  for (unsigned i = 0; i <= random() % 3; ++i) mutate(value, random);
  std::string text = value.dump();
  if (random() % 3 == 0 && !text.empty()) text[random() % text.size()] = static_cast<char>(random());
  if (random() % 16 == 0) text.resize(random() % (text.size() + 1));
  return text;
}

class Abuse : public ::testing::Test {
 protected:
  Abuse() : folder_(testing::talking_checkpoint(temp_)) {}
  testing::TempFolder temp_;
  std::filesystem::path folder_;
};

/// Whatever a body says, it is understood or refused with a 4xx that says why.
TEST_F(Abuse, ChangedBodiesAreUnderstoodOrRefused) {
  const auto engine = Engine::load(testing::talking_options(folder_));
  const std::function<ApiRequest(const Json&, const Engine&)> parsers[] = {
      parse_chat_request, parse_messages_request, parse_responses_request, parse_completion_request};
  std::mt19937 random(1);
  int understood = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::size_t form = static_cast<std::size_t>(i) % 4;
    const std::string body = mutated(kSamples[form], random);
    try {
      ApiRequest request = parsers[form](parse_body(body), *engine);
      const class Run run(*engine, std::move(request.generate));
      ++understood;
    } catch (const Error& error) {
      const int status = ApiError::of(error).status();
      EXPECT_TRUE(status >= 400 && status < 500) << status << " " << error.what() << "\n" << body;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << body;
    }
  }
  EXPECT_GT(understood, 100);
}

class LiveServer : public Abuse {
 protected:
  LiveServer() {
    ServerOptions options;
    options.port = 0;
    options.scheduler = {.max_active = 3, .max_queued = 200};
    options.http.header_timeout = std::chrono::seconds(2);
    options.warms_up = false;
    options.service.unix_time = [] { return std::int64_t{7}; };
    options.service.new_id = [] { return std::string("id"); };
    server_ =
        std::make_unique<Server>(options, [this] { return Engine::load(testing::talking_options(folder_)); });
    server_->wait_until_ready();
  }
  SocketClient client() const { return SocketClient(server_->port()); }
  std::string get(const std::string& path) const {
    SocketClient c = client();
    c.send("GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n");
    return c.read_to_end();
  }
  static std::string completion(int first, int tokens, bool streams) {
    const Json body{{"prompt", std::vector<int>(30, first)},
                    {"max_tokens", tokens},
                    {"temperature", 1},
                    {"seed", 4},
                    {"stream", streams}};
    return testing::post_text("/v1/completions", body.dump());
  }
  /// The part of a body that depends on the request alone.
  static std::string text_of(const std::string& response) {
    const Json body = Json::parse(response.substr(response.find("\r\n\r\n") + 4), nullptr, false);
    return body.is_object() && body.contains("choices") ? body["choices"].dump() : response;
  }
  std::unique_ptr<Server> server_;
};

TEST_F(LiveServer, AnswersOverASocket) {
  EXPECT_THAT(get("/health"), HasSubstr("{\"status\":\"ok\"}"));
  EXPECT_THAT(get("/"), HasSubstr("<title>mere.run</title>"));
  EXPECT_THAT(get("/v1/nope"), StartsWith("HTTP/1.1 404"));
  SocketClient c = client();
  c.send(completion(9, 12, true));
  const std::string stream = c.read_until("data: [DONE]\n\n");
  EXPECT_THAT(stream, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(stream, HasSubstr("\"finish_reason\":\"length\""));
}

/// Clients that vanish, stall, flood and babble, many at once; one that behaves gets what it gets alone.
TEST_F(LiveServer, OthersAreUnaffectedByAbuse) {
  SocketClient first = client();
  first.send(completion(50, 20, false));
  const std::string want = text_of(first.read_response());
  ASSERT_THAT(want, HasSubstr("finish_reason"));

  std::atomic<bool> is_over{false};
  const auto abuse = [&](unsigned seed) {
    std::mt19937 random(seed);
    while (!is_over.load()) {
      SocketClient c = client();
      switch (random() % 7) {
        case 0:  // leaves in mid-stream
          c.send(completion(static_cast<int>(random() % 4000), 500, true));
          c.read_until("data: ");
          if (random() % 2 == 0) c.reset();
          break;
        case 1:  // leaves at once, perhaps from the queue
          c.send(completion(static_cast<int>(random() % 4000), 500, random() % 2 == 0));
          break;
        case 2: c.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"); break;
        case 3:
          c.send(completion(3, 100, true));
          c.shut_down_sending();
          break;
        case 4:
          c.send("GET / HTTP/1.1\r\n" + std::string(40'000, 'A'));
          c.read_to_end();
          break;
        case 5: c.send(std::string("\x00\xff{\r\n\r\n", 7)); break;
        default: c.send(testing::post_text("/v1/messages", "{\"messages\":[[[[")); c.read_response();
      }
    }
  };
  std::vector<std::thread> abusers;
  for (unsigned i = 0; i < 4; ++i) abusers.emplace_back(abuse, i + 1);
  for (int i = 0; i < 12; ++i) {
    SocketClient c = client();
    c.send(completion(50, 20, false));
    EXPECT_EQ(text_of(c.read_response()), want) << i;
  }
  is_over = true;
  for (std::thread& thread : abusers) thread.join();
  // Every slot comes back.
  std::string status;
  do status = get("/runtime/status");
  while (status.find("\"active\":0,\"queued\":0") == std::string::npos);
}

TEST_F(LiveServer, ShuttingDownLetsTheActiveRequestEnd) {
  SocketClient c = client();
  c.send(completion(9, 60, true));
  const std::string begin = c.read_until("data: ");
  ASSERT_THAT(begin, StartsWith("HTTP/1.1 200"));
  server_->shut_down(30);
  const std::string rest = c.read_to_end();
  EXPECT_THAT(rest, HasSubstr("data: [DONE]\n\n"));
  EXPECT_FALSE(client().is_connected());
}

TEST(ServerLoading, AFailedLoadIsReportedToBothSides) {
  ServerOptions options;
  options.port = 0;
  Server server(options, []() -> std::unique_ptr<Engine> {
    throw Error(ErrorCode::kNotFound, "model: expected one, got none");
  });
  EXPECT_THROW(server.wait_until_ready(), Error);
  SocketClient c(server.port());
  c.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_THAT(c.read_response(),
              ::testing::AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("expected one, got none")));
}

}  // namespace
}  // namespace mererun
