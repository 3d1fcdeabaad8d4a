#include "server/api_error.h"

#include <fmt/format.h>

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/run.h"
#include "server/fields.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;

ErrorCode code_of(int status) {
  if (status == 503) return ErrorCode::kOutOfMemory;
  if (status == 499) return ErrorCode::kCancelled;
  return status < 500 ? ErrorCode::kInvalidArgument : ErrorCode::kInternal;
}

std::string_view openai_type(int status) {
  switch (status) {
    case 401:
    case 403: return "authentication_error";
    case 429: return "rate_limit_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

/// The field that a message "<field>: expected ..." names; empty where it names none.
std::string field_of(std::string_view message) {
  const auto colon = message.find(": ");
  if (colon == std::string_view::npos) return {};
  const std::string_view field = message.substr(0, colon);
  const bool is_name =
      field.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]") ==
      std::string_view::npos;
  return is_name ? std::string(field) : std::string();
}

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kOutOfMemory: return 503;
    case ErrorCode::kCancelled: return 499;
    default: return 500;
  }
}

}  // namespace

ApiError ApiError::bad_field(std::string_view param, std::string_view expected, std::string_view got) {
  ApiError error(400, ErrorCode::kInvalidArgument,
                 fmt::format("{}: expected {}, got {}", param, expected, got));
  error.param_ = param;
  return error;
}

ApiError ApiError::in_field(std::string_view param, const std::string& message) {
  const bool is_named = field_of(message) == param;
  ApiError error(400, ErrorCode::kInvalidArgument,
                 is_named ? message : fmt::format("{}: {}", param, message));
  error.param_ = param;
  return error;
}

ApiError ApiError::with(int status, const std::string& message, std::string code) {
  ApiError error(status, code_of(status), message);
  error.api_code_ = std::move(code);
  return error;
}

ApiError ApiError::later(int status, const std::string& message, int retry_after_seconds, std::string code) {
  ApiError error = with(status, message, std::move(code));
  error.retry_after_seconds_ = retry_after_seconds;
  return error;
}

ApiError ApiError::unknown_model(std::string_view served, std::string_view got) {
  ApiError error =
      with(404, fmt::format("model: expected {}, got {}", served, excerpt(Json(got))), "model_not_found");
  error.param_ = "model";
  return error;
}

ApiError ApiError::of(const std::exception& failure, std::string_view prompt_field) {
  if (const auto* known = dynamic_cast<const ApiError*>(&failure)) return *known;
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
    return later(503, "memory: expected more of it, got none", 5, "no_memory");
  const auto* named = dynamic_cast<const Error*>(&failure);
  if (named == nullptr)
    return with(500, fmt::format("internal: expected no failure, got {}", failure.what()));
  const Error& error = *named;
  const int status = status_of(error.code());
  ApiError out(status, error.code(), error.what());
  if (status == 400) out.param_ = field_of(error.what());
  if (status == 503) out.retry_after_seconds_ = 5;
  if (dynamic_cast<const PromptTooLong*>(&error) != nullptr) {
    out.param_ = prompt_field;
    out.api_code_ = "context_length_exceeded";
  } else if (status >= 500) {
    out.api_code_ = name_of(error.code());
  }
  return out;
}

Json error_body(const ApiError& error, ApiDialect dialect) {
  if (dialect == ApiDialect::kAnthropic) {
    return {{"type", "error"},
            {"error", {{"type", anthropic_type(error.status())}, {"message", error.what()}}}};
  }
  Json inner{{"message", error.what()}, {"type", openai_type(error.status())}};
  inner["param"] = error.param().empty() ? Json(nullptr) : Json(error.param());
  inner["code"] = error.api_code().empty() ? Json(nullptr) : Json(error.api_code());
  return {{"error", std::move(inner)}};
}

HttpResponse error_response(const ApiError& error, ApiDialect dialect) {
  HttpResponse response{.status = error.status()};
  response.body = dump(error_body(error, dialect));
  if (error.retry_after_seconds() > 0)
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_seconds())});
  if (error.status() == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace mererun
