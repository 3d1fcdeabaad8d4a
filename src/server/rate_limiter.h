#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace mererun {

/// So many requests a minute for each client: a bucket that fills evenly and holds a minute's worth.
///
/// Thread-safety: thread-safe.
class RateLimiter {
 public:
  using Seconds = std::function<double()>;
  /// `per_minute` 0: no limit. `now` is a clock that never goes back; the process's by default.
  explicit RateLimiter(std::int64_t per_minute, Seconds now = {});

  /// Takes one request of `client`; when there is none left, the whole seconds until there is.
  std::optional<int> take(const std::string& client);

 private:
  struct Bucket {
    double left = 0;
    double at = 0;
  };
  void forget_full(double now);

  const double per_minute_;
  Seconds now_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

}  // namespace mererun
