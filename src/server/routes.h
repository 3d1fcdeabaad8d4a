#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace mererun {

enum class Endpoint {
  kPage,
  kHealth,
  kModels,
  kModel,
  kChatCompletions,
  kCompletions,
  kResponses,
  kMessages,
  kCountTokens,
  kMetrics,
  kStatus,
  kTokenize,
  kDetokenize,
};

/// What a path leads to.
struct ApiRoute {
  Endpoint endpoint;
  std::string_view path;
  std::string_view method;
  ApiDialect dialect = ApiDialect::kOpenAi;
  bool is_open = false;    // needs no key
  bool generates = false;  // counts against the rate limit
  std::string_view prompt_field = "messages";
};

/// The route of a path, whatever the method; null for an unknown one. "/v1/models/x" is kModel.
const ApiRoute* find_route(std::string_view path);

/// The route that an unknown path was meant to be: one whose path behind "/v1" ends it, as where a client's
/// base address has "/v1" once too often or lacks it, or a slash follows. Null if there is none.
const ApiRoute* meant_route(std::string_view path);

/// The dialect in which to refuse a request for `path`, known or not.
ApiDialect dialect_of(std::string_view path);

/// A path segment without its %XX escapes.
std::string unescape_path(std::string_view text);

/// True if `origin` ("http://localhost:8080") is the site that a request's Host header names.
bool is_same_site(std::string_view origin, std::string_view host);
/// True if a Host header names this machine: localhost, 127.0.0.0/8 or [::1], with any port.
bool is_local_host(std::string_view host);

}  // namespace mererun
