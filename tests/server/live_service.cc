#include "tests/server/live_service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tests/engine/tiny_engine.h"
#include "tests/support/models.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path talking_checkpoint(const TempFolder& temp) {
  TinySpec spec = tiny_dense();
  spec.vocabulary = 8192;
  spec.max_positions = 4096;
  const fs::path folder = write_tiny_checkpoint(temp / "talking", spec);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(bundled("demo-dense-4bit") / name, folder / name, fs::copy_options::overwrite_existing);
  return folder;
}

EngineOptions talking_options(const fs::path& folder) {
  return engine_options_for(folder, std::size_t{64} << 20);
}

namespace {

ServiceOptions with_fixed_ids(ServiceOptions options) {
  options.unix_time = [] { return std::int64_t{7}; };
  options.new_id = [] { return std::string("id"); };
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
  HttpRequest request{.method = method,
                      .path = path,
                      .query = {},
                      .headers = std::move(headers),
                      .body = {},
                      .remote_address = "127.0.0.1"};
  auto exchange = std::make_shared<RecordedExchange>();
  if (auto early = service_.screen(request)) {
    exchange->respond(std::move(*early));
    return exchange;
  }
  request.body = body;
  service_.handle(std::move(request), exchange);
  return exchange;
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
