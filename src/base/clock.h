#pragma once

#include <chrono>

namespace mererun {

/// Monotonic time since construction or the last restart.
class Stopwatch {
 public:
  Stopwatch() : start_(std::chrono::steady_clock::now()) {}
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// Seconds since the last restart, which this is.
  double restart() {
    const auto now = std::chrono::steady_clock::now();
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return elapsed;
  }

 private:
  std::chrono::steady_clock::time_point start_;
};

}  // namespace mererun
