#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace mererun {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

/// Sets the lowest severity that is printed; the default is kWarn. Thread-safe.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Parses "error", "warn", "info" or "debug". Errors: kInvalidArgument for anything else.
LogLevel parse_log_level(std::string_view text);

/// Writes one line "level=<level> event=<event> <fields>" to stderr, whole lines even from several threads.
/// `fields` is a preformatted list of key=value pairs. Library code logs loading, fallbacks and refusals,
/// nothing per token.
void log_line(LogLevel level, std::string_view event, std::string_view fields);

template <typename... Args>
void log(LogLevel level, std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) log_line(level, event, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mererun
