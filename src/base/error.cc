#include "base/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace mererun {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kCorruptData: return "corrupt_data";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kDevice: return "device";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kNumeric: return "numeric";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, std::string hint, SourceLocation location)
    : std::runtime_error(message), code_(code), hint_(std::move(hint)), location_(location) {}

void fail_expected(ErrorCode code, std::string_view where, std::string_view expected, std::string_view got,
                   SourceLocation location) {
  throw Error(code, fmt::format("{}: expected {}, got {}", where, expected, got), {}, location);
}

void check_failed(const char* condition, const char* context, SourceLocation location) {
  std::fprintf(stderr, "mere.run: internal error: %s:%u: %s does not hold (%s)\n", location.file_name(),
               location.line(), condition, context);
  std::abort();
}

}  // namespace mererun
