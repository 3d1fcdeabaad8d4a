#include "server/routes.h"

#include <array>
#include <charconv>
#include <cstddef>

#include "server/http_message.h"

namespace mererun {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

constexpr std::array kRoutes = {
    ApiRoute{.endpoint = Endpoint::kPage, .path = "/", .method = "GET", .is_open = true},
    ApiRoute{.endpoint = Endpoint::kHealth, .path = "/health", .method = "GET", .is_open = true},
    ApiRoute{.endpoint = Endpoint::kModels, .path = "/v1/models", .method = "GET"},
    ApiRoute{.endpoint = Endpoint::kModel, .path = kModelPrefix, .method = "GET"},
    ApiRoute{.endpoint = Endpoint::kChatCompletions,
             .path = "/v1/chat/completions",
             .method = "POST",
             .generates = true},
    ApiRoute{.endpoint = Endpoint::kCompletions,
             .path = "/v1/completions",
             .method = "POST",
             .generates = true,
             .prompt_field = "prompt"},
    ApiRoute{.endpoint = Endpoint::kResponses,
             .path = "/v1/responses",
             .method = "POST",
             .generates = true,
             .prompt_field = "input"},
    ApiRoute{.endpoint = Endpoint::kMessages,
             .path = "/v1/messages",
             .method = "POST",
             .dialect = ApiDialect::kAnthropic,
             .generates = true},
    ApiRoute{.endpoint = Endpoint::kCountTokens,
             .path = "/v1/messages/count_tokens",
             .method = "POST",
             .dialect = ApiDialect::kAnthropic},
    ApiRoute{.endpoint = Endpoint::kMetrics, .path = "/metrics", .method = "GET"},
    ApiRoute{.endpoint = Endpoint::kStatus, .path = "/runtime/status", .method = "GET"},
    ApiRoute{.endpoint = Endpoint::kTokenize, .path = "/tokenize", .method = "POST"},
    ApiRoute{.endpoint = Endpoint::kDetokenize, .path = "/detokenize", .method = "POST"},
};

/// "localhost:80" of "http://localhost:80".
std::string_view host_of(std::string_view origin) {
  const auto slashes = origin.find("://");
  return slashes == std::string_view::npos ? std::string_view() : origin.substr(slashes + 3);
}

std::string_view without_port(std::string_view host) {
  const auto bracket = host.find(']');
  if (bracket != std::string_view::npos) return host.substr(0, bracket + 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

const ApiRoute* find_route(std::string_view path) {
  for (const ApiRoute& route : kRoutes) {
    if (path == route.path && route.endpoint != Endpoint::kModel) return &route;
    if (route.endpoint == Endpoint::kModel && path.starts_with(kModelPrefix) &&
        path.size() > kModelPrefix.size())
      return &route;
  }
  return nullptr;
}

const ApiRoute* meant_route(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  const ApiRoute* meant = nullptr;
  for (const ApiRoute& route : kRoutes) {
    std::string_view end = route.path;
    if (end.starts_with("/v1")) end.remove_prefix(3);
    if (end == "/" || !path.ends_with(end)) continue;
    if (!meant || route.path.size() > meant->path.size()) meant = &route;
  }
  return meant;
}

ApiDialect dialect_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ApiDialect::kAnthropic : ApiDialect::kOpenAi;
}

std::string unescape_path(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3;
    out += is_escape ? static_cast<char>(value) : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

bool is_same_site(std::string_view origin, std::string_view host) {
  return !host.empty() && host_of(origin) == host;
}

bool is_local_host(std::string_view host) {
  const std::string_view name = without_port(host);
  return equal_ignoring_case(name, "localhost") || name == "[::1]" ||
         (name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string_view::npos);
}

}  // namespace mererun
