#include "tests/server/recorded_exchange.h"

#include <utility>

namespace mererun::testing {

void RecordedExchange::respond(HttpResponse response) {
  const std::lock_guard lock(mutex_);
  response_ = std::move(response);
  finish();
}

void RecordedExchange::begin_stream(HttpResponse head, std::string) {
  const std::lock_guard lock(mutex_);
  response_ = std::move(head);
}

void RecordedExchange::write(std::string text) {
  std::unique_lock lock(mutex_);
  response_.body += text;
  changed_.notify_all();
  changed_.wait(
      lock, [&] { return held_behind_.empty() || response_.body.find(held_behind_) == std::string::npos; });
}

void RecordedExchange::end_stream() {
  const std::lock_guard lock(mutex_);
  finish();
}

void RecordedExchange::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_gone_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

HttpResponse RecordedExchange::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over_; });
  return response_;
}

bool RecordedExchange::wait_for(const std::string& text) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return response_.body.find(text) != std::string::npos; };
  changed_.wait(lock, [&] { return is_over_ || is_there(); });
  return is_there();
}

void RecordedExchange::leave() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    is_gone_ = true;
    call = std::exchange(callback_, {});
  }
  if (call) call();
}

void RecordedExchange::hold_behind(std::string text) {
  const std::lock_guard lock(mutex_);
  held_behind_ = std::move(text);
}

void RecordedExchange::go_on() {
  const std::lock_guard lock(mutex_);
  held_behind_.clear();
  changed_.notify_all();
}

void RecordedExchange::at_end(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  at_end_ = std::move(callback);
}

/// With the mutex held.
void RecordedExchange::finish() {
  if (at_end_) at_end_();
  is_over_ = true;
  changed_.notify_all();
}

}  // namespace mererun::testing
