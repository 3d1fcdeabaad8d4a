#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mererun {

/// Why a call failed. The program's exit codes (docs/options.md) and the server's status codes follow from it.
enum class ErrorCode {
  kInvalidArgument,  // a flag, a request field or an API argument
  kNotFound,         // a model, file or head that should exist
  kCorruptData,      // a checkpoint or stored state that contradicts itself
  kUnsupported,      // a feature, device or format this build does not serve
  kOutOfMemory,
  kDevice,   // the device failed; the engine that met it is unusable afterwards
  kIo,       // the operating system refused a read or write
  kNumeric,  // NaN or infinity where a number was needed
  kCancelled,
  kInternal,  // a broken invariant of our own
};

/// Lower-case name of a code, as reports print it ("invalid_argument").
std::string_view name_of(ErrorCode code);

/// The one exception type of the project. The message reads "<where>: expected <X>, got <Y>".
///
/// Thread-safety: thread-compatible.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {},
        std::source_location location = std::source_location::current());

  ErrorCode code() const { return code_; }
  /// What the user can do about it; empty when there is nothing to add.
  const std::string& hint() const { return hint_; }
  const std::source_location& location() const { return location_; }

 private:
  ErrorCode code_;
  std::string hint_;
  std::source_location location_;
};

/// Throws Error with the message "<where>: expected <expected>, got <got>".
[[noreturn]] void fail_expected(ErrorCode code, std::string_view where, std::string_view expected,
                                std::string_view got,
                                std::source_location location = std::source_location::current());

/// Prints a broken invariant of our own and aborts. Reached through MERERUN_CHECK only.
[[noreturn]] void check_failed(const char* condition, const char* context,
                               std::source_location location = std::source_location::current());

}  // namespace mererun

/// Holds in every build; for our own bugs, never for user input.
#define MERERUN_CHECK(condition, context) \
  do {                                    \
    if (!(condition)) [[unlikely]]        \
      ::mererun::check_failed(#condition, context); \
  } while (false)
