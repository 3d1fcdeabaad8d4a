#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"
#include "server/http_message.h"

namespace mererun {

/// The form in which a route speaks of errors.
enum class ApiDialect { kOpenAi, kAnthropic };

/// A refusal or failure as a client gets it.
class ApiError final : public Error {
 public:
  /// 400 for the field `param`; the message reads "<param>: expected <expected>, got <got>".
  static ApiError bad_field(std::string_view param, std::string_view expected, std::string_view got);
  /// 400 for the field `param`, about something inside it.
  static ApiError in_field(std::string_view param, const std::string& message);
  static ApiError with(int status, const std::string& message, std::string code = {});
  /// 503 or 429: try again after some seconds.
  static ApiError later(int status, const std::string& message, int retry_after_seconds,
                        std::string code = {});
  /// 404 for a model that is not the served one.
  static ApiError unknown_model(std::string_view served, std::string_view got);
  /// What a failure means to a client: an Error by its code, lack of memory as 503, anything else as 500.
  /// `prompt_field` is where the body has what did not fit the context.
  static ApiError of(const std::exception& error, std::string_view prompt_field = {});

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& api_code() const { return api_code_; }
  int retry_after_seconds() const { return retry_after_seconds_; }

 private:
  ApiError(int status, ErrorCode code, const std::string& message) : Error(code, message), status_(status) {}

  int status_;
  std::string param_;
  std::string api_code_;
  int retry_after_seconds_ = 0;
};

/// {"error": {message, type, param, code}}, or Anthropic's {"type": "error", "error": {type, message}}.
nlohmann::ordered_json error_body(const ApiError& error, ApiDialect dialect);
HttpResponse error_response(const ApiError& error, ApiDialect dialect);

}  // namespace mererun
