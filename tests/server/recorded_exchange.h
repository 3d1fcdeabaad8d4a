#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "server/http_message.h"

namespace mererun::testing {

/// An exchange without a connection: keeps what it was answered.
class RecordedExchange final : public HttpExchange {
 public:
  void respond(HttpResponse response) override;
  void begin_stream(HttpResponse head, std::string idle_text) override;
  void write(std::string text) override;
  void end_stream() override;
  void on_closed(std::function<void()> callback) override;

  /// Waits for the end of the answer; its head, with the whole text as body.
  HttpResponse wait();
  /// Waits until the stream holds `text`; false when it ends without.
  bool wait_for(const std::string& text);
  /// The client goes away.
  void leave();

  /// Once the stream holds `text`, its writer waits for `go_on`.
  void hold_behind(std::string text);
  void go_on();
  /// Calls back when the answer ends, on its writer's thread and before `wait` returns.
  void at_end(std::function<void()> callback);

 private:
  void finish();
  std::mutex mutex_;
  std::condition_variable changed_;
  HttpResponse response_;
  bool is_over_ = false;
  bool is_gone_ = false;
  std::function<void()> callback_;
  std::string held_behind_;  // empty: not held
  std::function<void()> at_end_;
};

}  // namespace mererun::testing
