#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/rate_limiter.h"
#include "server/reply_parts.h"
#include "server/routes.h"
#include "server/scheduler.h"
#include "server/status_report.h"

namespace mererun {

struct ServiceOptions {
  std::optional<std::string> api_key = {};
  std::int64_t rate_limit_per_minute = 0;        // 0: off
  std::string cors_origin = {};                  // empty: other sites are refused
  bool serial_route = false;                     // the width-1 oracle for every request
  bool logs_content = false;                     // requests' bodies in the log
  std::string overrides_json = "[]";             // for the status report
  std::function<std::int64_t()> unix_time = {};  // the system's by default
  std::function<std::string()> new_id = {};      // 24 random hex digits by default
  RateLimiter::Seconds steady_seconds = {};      // of the rate limit; the process's by default
};

/// Answers the requests of the API with one engine, once that is loaded.
///
/// Thread-safety: thread-safe.
class Service final : public HttpHandler {
 public:
  Service(ServiceOptions options, Metrics& metrics);

  /// From now on requests are served. Both must outlive the last request.
  void set_ready(Engine& engine, Scheduler& scheduler);
  /// The model could not be loaded.
  void set_failed(const std::string& message);
  /// For the status report.
  void set_connection_counter(std::function<int()> count) { connections_ = std::move(count); }

  std::optional<HttpResponse> screen(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse refuse(int status, std::string_view message) override;

 private:
  /// What a request is served with.
  struct Backing {
    Engine* engine = nullptr;
    Scheduler* scheduler = nullptr;
  };
  struct Form {
    ApiRequest (*parse)(const nlohmann::ordered_json&, const Engine&);
    std::unique_ptr<Reply> (*make_reply)(ReplyContext, const ApiRequest&);
  };

  std::optional<ApiError> objection(const HttpRequest& head, const ApiRoute* route);
  void answer(const ApiRoute& route, const HttpRequest& request,
              const std::shared_ptr<HttpExchange>& exchange);
  void generate(const ApiRoute& route, const Form& form, const HttpRequest& request,
                const std::shared_ptr<HttpExchange>& exchange);
  Backing backing() const;
  /// Why nothing can be generated yet, or ever; none once the model is loaded.
  std::optional<ApiError> unready() const;
  HttpResponse health() const;
  HttpResponse models(std::string_view id) const;
  HttpResponse metrics_text() const;
  HttpResponse status() const;
  HttpResponse count_tokens(const HttpRequest& request) const;
  HttpResponse tokenize(const HttpRequest& request) const;
  HttpResponse detokenize(const HttpRequest& request) const;
  StatusInputs status_inputs() const;
  std::vector<HttpHeader> cors_headers() const;
  HttpResponse with_cors(HttpResponse response) const;

  const ServiceOptions options_;
  Metrics& metrics_;
  RateLimiter limiter_;
  Stopwatch uptime_;
  std::function<int()> connections_;

  mutable std::mutex mutex_;
  Backing backing_;
  std::optional<std::string> load_failure_;
  std::int64_t ready_at_ = 0;  // unix time
  std::string system_fingerprint_;
};

}  // namespace mererun
