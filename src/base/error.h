#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace mererun {

/// Why a call failed. The program's exit codes (docs/options.md) and the server's status codes follow from
/// it.
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

/// Where in our source an error arose. The standard's source_location, in the part of it that clang 14 (the
/// analyser and the fuzzing compiler of Debian 12) can compile.
class SourceLocation {
 public:
  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          unsigned line = static_cast<unsigned>(__builtin_LINE())) {
    return SourceLocation(file, line);
  }

  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  constexpr SourceLocation(const char* file, unsigned line) : file_(file), line_(line) {}

  const char* file_;
  unsigned line_;
};

/// The one exception type of the project. The message reads "<where>: expected <X>, got <Y>".
///
/// Thread-safety: thread-compatible.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {},
        SourceLocation location = SourceLocation::current());

  ErrorCode code() const { return code_; }
  /// What the user can do about it; empty when there is nothing to add.
  const std::string& hint() const { return hint_; }
  const SourceLocation& location() const { return location_; }

 private:
  ErrorCode code_;
  std::string hint_;
  SourceLocation location_;
};

/// Throws Error with the message "<where>: expected <expected>, got <got>".
[[noreturn]] void fail_expected(ErrorCode code, std::string_view where, std::string_view expected,
                                std::string_view got, SourceLocation location = SourceLocation::current());

/// Prints a broken invariant of our own and aborts. Reached through MERERUN_CHECK only.
[[noreturn]] void check_failed(const char* condition, const char* context,
                               SourceLocation location = SourceLocation::current());

}  // namespace mererun

/// Holds in every build; for our own bugs, never for user input.
#define MERERUN_CHECK(condition, context)           \
  do {                                              \
    if (!(condition)) [[unlikely]]                  \
      ::mererun::check_failed(#condition, context); \
  } while (false)
