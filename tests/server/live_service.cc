#include "tests/server/live_service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tests/engine/tiny_engine.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path talking_checkpoint(const TempFolder& temp) {
  TinySpec spec = tiny_dense();
  spec.vocabulary = 8192;
  spec.max_positions = 4096;
  const fs::path folder = write_tiny_checkpoint(temp / "talking", spec);
  add_tokenizer(folder);
  return folder;
}

EngineOptions talking_options(const fs::path& folder) {
  return engine_options_for(folder, std::size_t{64} << 20);
}

namespace {

ServiceOptions with_fixed_ids(ServiceOptions options) {
  options.unix_time = [] { return std::int64_t{7}; };
  options.new_id = [] { return std::string("id"); };
  options.steady_seconds = [] { return 0.0; };
  return options;
}

}  // namespace

LiveService::LiveService(std::unique_ptr<Engine> engine, SchedulerOptions scheduler, ServiceOptions service)
    : engine_(std::move(engine)),
      scheduler_(*engine_, scheduler, metrics_),
      service_(with_fixed_ids(std::move(service)), metrics_) {
  service_.set_ready(*engine_, scheduler_);
  thread_ = std::thread([this] { scheduler_.work(); });
}

LiveService::~LiveService() {
  scheduler_.stop(0);
  thread_.join();
}

std::shared_ptr<RecordedExchange> LiveService::send(const std::string& method, const std::string& path,
                                                    const std::string& body,
                                                    std::vector<HttpHeader> headers) {
  auto exchange = std::make_shared<RecordedExchange>();
  give(method, path, body, std::move(headers), exchange);
  return exchange;
}

std::shared_ptr<RecordedExchange> LiveService::send_held(const std::string& path, const Json& body) {
  auto exchange = std::make_shared<RecordedExchange>();
  exchange->hold_behind("data: ");
  give("POST", path, body.dump(), {}, exchange);
  return exchange;
}

void LiveService::give(const std::string& method, const std::string& path, const std::string& body,
                       std::vector<HttpHeader> headers, const std::shared_ptr<RecordedExchange>& exchange) {
  HttpRequest request{.method = method,
                      .path = path,
                      .headers = std::move(headers),
                      .body = {},
                      .remote_address = "127.0.0.1"};
  if (auto early = service_.screen(request)) return exchange->respond(std::move(*early));
  request.body = body;
  service_.handle(std::move(request), exchange);
}

HttpResponse LiveService::post(const std::string& path, const Json& body) {
  return send("POST", path, body.dump())->wait();
}
HttpResponse LiveService::get(const std::string& path) { return send("GET", path)->wait(); }

Json json_of(const HttpResponse& response) {
  Json body = Json::parse(response.body, nullptr, false);
  EXPECT_FALSE(body.is_discarded()) << response.body;
  return body;
}

std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  std::size_t at = 0;
  while ((at = stream.find("data: ", at)) != std::string::npos) {
    const std::size_t begin = at + 6, end = stream.find("\n\n", begin);
    const std::string text = stream.substr(begin, end - begin);
    if (text != "[DONE]") events.push_back(Json::parse(text));
    at = end;
  }
  return events;
}

Json without_extensions(Json body) {
  for (const char* name : {"acceleration", "prefix_cache", "timings"}) body.erase(name);
  // How much of a prompt the cache held is no part of the answer.
  if (body.contains("usage") && body["usage"].is_object()) {
    for (const char* name :
         {"prompt_tokens_details", "input_tokens_details", "input_tokens", "cache_read_input_tokens"})
      body["usage"].erase(name);
  }
  return body;
}

}  // namespace mererun::testing
