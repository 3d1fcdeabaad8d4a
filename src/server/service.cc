#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/build_info.h"
#include "base/log.h"
#include "server/chat_reply.h"
#include "server/chat_request.h"
#include "server/completion.h"
#include "server/messages_reply.h"
#include "server/messages_request.h"
#include "server/page.h"
#include "server/responses_reply.h"
#include "server/responses_request.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t system_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string random_id() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{:016x}{:08x}", generator(), static_cast<std::uint32_t>(generator()));
}

/// Names of fields that were ignored, for a header: clients and proxies bound the headers that they take.
std::string ignored_names(const std::vector<std::string>& names) {
  constexpr std::size_t kMostBytes = 1000;
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char* comma = i == 0 ? "" : ", ";
    if (out.size() + names[i].size() > kMostBytes)
      return out + fmt::format("{}{} more", comma, names.size() - i);
    out += comma + names[i];
  }
  return out;
}

ServiceOptions with_defaults(ServiceOptions options) {
  if (!options.unix_time) options.unix_time = system_time;
  if (!options.new_id) options.new_id = random_id;
  return options;
}

/// The key that a client sent, in either header.
std::string_view sent_key(const HttpRequest& head) {
  const std::string_view bearer = head.header("Authorization");
  if (bearer.size() > 7 && equal_ignoring_case(bearer.substr(0, 7), "Bearer ")) return bearer.substr(7);
  return head.header("x-api-key");
}

std::vector<TokenId> read_ids(Fields& fields, std::string_view name, int vocabulary) {
  const Json* list = fields.array(name);
  if (list == nullptr) fields.refuse(name, "a list of token ids");
  std::vector<TokenId> ids;
  for (const Json& id : *list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocabulary)
      throw ApiError::bad_field(fields.path(name), fmt::format("token ids 0..{}", vocabulary - 1),
                                excerpt(id));
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace

Service::Service(ServiceOptions options, Metrics& metrics)
    : options_(with_defaults(std::move(options))),
      metrics_(metrics),
      limiter_(options_.rate_limit_per_minute, options_.steady_seconds) {}

void Service::set_ready(Engine& engine, Scheduler& scheduler) {
  const std::lock_guard lock(mutex_);
  backing_ = {&engine, &scheduler};
  ready_at_ = options_.unix_time();
  system_fingerprint_ = fmt::format("mererun-{}-{}-v{}", build_commit(), engine.fingerprint().substr(0, 12),
                                    kNumericContractVersion);
}

void Service::set_failed(const std::string& message) {
  const std::lock_guard lock(mutex_);
  load_failure_ = message;
}

Service::Backing Service::backing() const {
  if (const auto error = unready()) throw *error;
  const std::lock_guard lock(mutex_);
  return backing_;
}

std::optional<ApiError> Service::unready() const {
  const std::lock_guard lock(mutex_);
  if (load_failure_)
    return ApiError::with(503, "model: expected one that loads, got: " + *load_failure_, "failed");
  if (backing_.engine == nullptr)
    return ApiError::later(503, "model: expected it loaded, got one that is loading", 2, "loading");
  return std::nullopt;
}

std::vector<HttpHeader> Service::cors_headers() const {
  if (options_.cors_origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", options_.cors_origin},
          {"Access-Control-Expose-Headers", "X-MereRun-Ignored, Retry-After"},
          {"Vary", "Origin"}};
}

HttpResponse Service::with_cors(HttpResponse response) const {
  for (HttpHeader& header : cors_headers()) response.headers.push_back(std::move(header));
  return response;
}

/// Why a request is refused before its body is read.
std::optional<ApiError> Service::objection(const HttpRequest& head, const ApiRoute* route) {
  if (route == nullptr) {
    const ApiRoute* meant = meant_route(head.path);
    return ApiError::with(404, fmt::format("path: expected {}, got {}", meant ? meant->path : "a known one",
                                           excerpt(Json(head.path))));
  }
  const bool fits = head.method == route->method || (route->method == "GET" && head.method == "HEAD");
  if (!fits)
    return ApiError::with(405, fmt::format("method: expected {}, got {}", route->method, head.method));
  const std::string_view host = head.header("Host"), origin = head.header("Origin");
  // A name that somebody else's DNS points here makes a page of theirs this server's own site.
  if (!options_.api_key && !host.empty() && !is_local_host(host))
    return ApiError::with(403, fmt::format("host: expected a loopback name, as there is no api key, got {}",
                                           excerpt(Json(std::string(host)))));
  const bool is_asked_for = options_.cors_origin == "*" || origin == options_.cors_origin;
  if (!origin.empty() && !is_asked_for && !is_same_site(origin, host))
    return ApiError::with(403, fmt::format("origin: expected this server's own page, got {}",
                                           excerpt(Json(std::string(origin)))));
  if (options_.api_key && !route->is_open && !equal_in_constant_time(sent_key(head), *options_.api_key))
    return ApiError::with(401, "api key: expected the server's key, got another or none", "invalid_api_key");
  const std::string_view coding = head.header("Content-Encoding");
  if (!coding.empty() && !equal_ignoring_case(coding, "identity"))
    return ApiError::with(
        415, fmt::format("body: expected no content encoding, got {}", excerpt(Json(std::string(coding)))));
  if (!route->generates) return std::nullopt;
  if (auto error = unready()) return error;  // whoever waits for the model to load spends no rate
  const std::string client = options_.api_key ? "key" : head.remote_address;
  if (const auto wait = limiter_.take(client)) {
    return ApiError::later(
        429,
        fmt::format("rate: expected at most {} requests a minute, got more", options_.rate_limit_per_minute),
        *wait, "rate_limit_exceeded");
  }
  return std::nullopt;
}

std::optional<HttpResponse> Service::screen(const HttpRequest& head) {
  const ApiRoute* route = find_route(head.path);
  if (head.method == "OPTIONS" && route != nullptr && !options_.cors_origin.empty()) {
    HttpResponse response{.status = 204, .content_type = {}};
    response.headers = {
        {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
        // Any: clients add headers of their own, and none of them means anything here.
        {"Access-Control-Allow-Headers", std::string(head.header("Access-Control-Request-Headers"))},
        {"Access-Control-Max-Age", "600"}};
    return with_cors(std::move(response));
  }
  const auto error = objection(head, route);
  if (!error) return std::nullopt;
  metrics_.add("http_responses_total", label("status", std::to_string(error->status())));
  HttpResponse response = error_response(*error, dialect_of(head.path));
  if (error->status() == 405) response.headers.push_back({"Allow", std::string(route->method)});
  return with_cors(std::move(response));
}

HttpResponse Service::refuse(int status, std::string_view message) {
  metrics_.add("http_responses_total", label("status", std::to_string(status)));
  return error_response(status == 503 ? ApiError::later(status, std::string(message), 2)
                                      : ApiError::with(status, std::string(message)),
                        ApiDialect::kOpenAi);
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  const ApiRoute& route = *find_route(request.path);  // screen() saw to it
  const auto fail = [&](const ApiError& error) {
    metrics_.add("http_responses_total", label("status", std::to_string(error.status())));
    // The message may quote the request, which is nobody's business but the client's.
    log(LogLevel::kInfo, "refused", "path={} status={} field={}", route.path, error.status(), error.param());
    exchange->respond(with_cors(error_response(error, route.dialect)));
  };
  try {
    answer(route, request, exchange);
  } catch (const std::exception& error) {
    fail(ApiError::of(error, route.prompt_field));
  }
}

void Service::answer(const ApiRoute& route, const HttpRequest& request,
                     const std::shared_ptr<HttpExchange>& exchange) {
  const auto respond = [&](HttpResponse response) { exchange->respond(with_cors(std::move(response))); };
  switch (route.endpoint) {
    case Endpoint::kPage:
      return respond(
          {.content_type = "text/html; charset=utf-8",
           .headers = {{"Content-Security-Policy", std::string(kPagePolicy)}, {"X-Frame-Options", "DENY"}},
           .body = std::string(page_html())});
    case Endpoint::kHealth: return respond(health());
    case Endpoint::kModels: return respond(models({}));
    case Endpoint::kModel:
      return respond(models(unescape_path(std::string_view(request.path).substr(route.path.size()))));
    case Endpoint::kMetrics: return respond(metrics_text());
    case Endpoint::kStatus: return respond(status());
    case Endpoint::kTokenize: return respond(tokenize(request));
    case Endpoint::kDetokenize: return respond(detokenize(request));
    case Endpoint::kCountTokens: return respond(count_tokens(request));
    case Endpoint::kChatCompletions:
      return generate(route, {parse_chat_request, make_chat_reply}, request, exchange);
    case Endpoint::kCompletions:
      return generate(route, {parse_completion_request, make_completion_reply}, request, exchange);
    case Endpoint::kResponses:
      return generate(route, {parse_responses_request, make_responses_reply}, request, exchange);
    case Endpoint::kMessages:
      return generate(route, {parse_messages_request, make_messages_reply}, request, exchange);
    default: throw ApiError::with(404, "path: expected a known one, got another");
  }
}

void Service::generate(const ApiRoute& route, const Form& form, const HttpRequest& request,
                       const std::shared_ptr<HttpExchange>& exchange) {
  const auto [engine, scheduler] = backing();
  const Json body = parse_body(request.body);
  ApiRequest parsed = form.parse(body, *engine);
  Scheduler::Place place = scheduler->reserve();
  auto job = std::make_unique<Job>();
  job->id = options_.new_id();
  job->route = route.path;
  if (options_.logs_content) job->content = " body=" + dump(body);
  job->cancel = std::make_shared<CancelFlag>();
  ReplyContext context{.exchange = exchange,
                       .id = job->id,
                       .created = options_.unix_time(),
                       .model = engine->resolved().id,
                       .system_fingerprint = system_fingerprint_,
                       .tokenizer = engine->shared_tokenizer(),
                       .headers = cors_headers()};
  if (!parsed.ignored.empty())
    context.headers.push_back({"X-MereRun-Ignored", ignored_names(parsed.ignored)});
  parsed.generate.serial_route = options_.serial_route;
  parsed.stops = parsed.generate.stop;
  parsed.logprobs = parsed.generate.logprobs;
  job->run =
      std::make_unique<Run>(*engine, std::move(parsed.generate),
                            [pieces = &job->pieces](const OutputPiece& piece) { pieces->push_back(piece); });
  job->memory = scheduler->memory_for(*job->run);
  job->reply = form.make_reply(std::move(context), parsed);
  exchange->on_closed([flag = job->cancel, scheduler = scheduler] {
    flag->is_set = true;
    scheduler->wake();
  });
  scheduler->submit(std::move(place), std::move(job));
}

HttpResponse Service::health() const {
  std::string state = "ok", message;
  {
    const std::lock_guard lock(mutex_);
    if (load_failure_) {
      state = "failed";
      message = *load_failure_;
    } else if (backing_.engine == nullptr) {
      state = "loading";
    } else if (const auto failure = backing_.scheduler->failure()) {
      state = "failed";
      message = *failure;
    }
  }
  Json body{{"status", state}};
  if (!message.empty()) body["message"] = message;
  HttpResponse response = json_response(body);
  if (state != "ok") response.status = 503;
  if (state == "loading") response.headers.push_back({"Retry-After", "2"});
  return response;
}

HttpResponse Service::models(std::string_view id) const {
  const auto [engine, scheduler] = backing();
  const ResolvedModel& served = engine->resolved();
  const Json model{{"id", served.id},
                   {"object", "model"},
                   {"created", ready_at_},
                   {"owned_by", "mere.run"},
                   {"context_length", engine->context_limit()},
                   {"fingerprint", engine->fingerprint()},
                   {"type", "model"},
                   {"display_name", served.id}};
  if (id.empty())
    return json_response({{"object", "list"}, {"data", Json::array({model})}, {"has_more", false}});
  if (id != served.id) throw ApiError::unknown_model(served.id, id);
  return json_response(model);
}

StatusInputs Service::status_inputs() const {
  const auto [engine, scheduler] = backing();
  return {.engine = *engine,
          .scheduler = *scheduler,
          .metrics = metrics_,
          .rate_limit_per_minute = options_.rate_limit_per_minute,
          .uptime_seconds = uptime_.seconds(),
          .connections = connections_ ? connections_() : 0,
          .overrides_json = options_.overrides_json};
}

HttpResponse Service::metrics_text() const {
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_.text(status_gauges(status_inputs()))};
}

HttpResponse Service::status() const { return json_response(status_json(status_inputs())); }

HttpResponse Service::tokenize(const HttpRequest& request) const {
  const auto [engine, scheduler] = backing();
  const Json body = parse_body(request.body);
  Fields fields(body, "");
  check_model(fields, *engine);
  const std::string text = fields.required_text("text");
  const bool parses = fields.boolean("parse_special").value_or(true);
  const auto ids = engine->tokenizer().encode(
      text, {.added_tokens = parses ? AddedTokenText::kToken : AddedTokenText::kPlain});
  return json_response({{"tokens", ids}, {"count", ids.size()}});
}

HttpResponse Service::count_tokens(const HttpRequest& request) const {
  const auto [engine, scheduler] = backing();
  const ApiRequest parsed = parse_count_request(parse_body(request.body), *engine);
  return json_response({{"input_tokens", plan_prompt(*engine, parsed.generate).ids.size()}});
}

HttpResponse Service::detokenize(const HttpRequest& request) const {
  const auto [engine, scheduler] = backing();
  const Json body = parse_body(request.body);
  Fields fields(body, "");
  check_model(fields, *engine);
  const auto ids = read_ids(fields, "tokens", engine->resolved().config.vocabulary);
  return json_response({{"text", engine->tokenizer().decode(ids)}});
}

}  // namespace mererun
