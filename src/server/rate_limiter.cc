#include "server/rate_limiter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>

namespace mererun {
namespace {

constexpr std::size_t kMostBuckets = 10'000;

double process_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

RateLimiter::RateLimiter(std::int64_t per_minute, Seconds now)
    : per_minute_(static_cast<double>(per_minute)), now_(now ? std::move(now) : process_seconds) {}

/// A full bucket says as much as none.
void RateLimiter::forget_full(double now) {
  std::erase_if(buckets_, [&](const auto& entry) {
    return entry.second.left + (now - entry.second.at) * per_minute_ / 60 >= per_minute_;
  });
  if (buckets_.size() >= kMostBuckets) buckets_.clear();
}

std::optional<int> RateLimiter::take(const std::string& client) {
  if (per_minute_ <= 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const double now = now_();
  if (buckets_.size() >= kMostBuckets && !buckets_.contains(client)) forget_full(now);
  auto [at, is_new] = buckets_.try_emplace(client, Bucket{per_minute_, now});
  Bucket& bucket = at->second;
  bucket.left = std::min(per_minute_, bucket.left + (now - bucket.at) * per_minute_ / 60);
  bucket.at = now;
  if (bucket.left < 1) return std::max(1, static_cast<int>(std::ceil((1 - bucket.left) * 60 / per_minute_)));
  bucket.left -= 1;
  return std::nullopt;
}

}  // namespace mererun
