#include "base/log.h"

#include <atomic>
#include <cstdio>

#include "base/error.h"

namespace mererun {
namespace {
std::atomic<LogLevel> g_level{LogLevel::kWarn};
constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
}  // namespace

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel log_level() { return g_level.load(std::memory_order_relaxed); }

LogLevel parse_log_level(std::string_view text) {
  for (int i = 0; i < 4; ++i)
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  fail_expected(ErrorCode::kInvalidArgument, "log level", "error, warn, info or debug",
                fmt::format("'{}'", text));
}

void log_line(LogLevel level, std::string_view event, std::string_view fields) {
  const std::string line =
      fmt::format("level={} event={} {}\n", kNames[static_cast<int>(level)], event, fields);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write: lines of two threads do not mix
}

}  // namespace mererun
