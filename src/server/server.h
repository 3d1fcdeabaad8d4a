#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http_server.h"
#include "server/scheduler.h"
#include "server/service.h"

namespace mererun {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  HttpLimits http;
  ServiceOptions service;
  SchedulerOptions scheduler;
  bool warms_up = true;  // one short reply before the first request, so that it pays for nothing
};

/// The whole server: the port is open from the start, the model is loaded and computes on a thread of its
/// own.
///
/// Thread-safety: thread-safe.
class Server {
 public:
  using Load = std::function<std::unique_ptr<Engine>()>;

  /// Opens the port and begins to load. Errors: those of HttpServer.
  Server(ServerOptions options, Load load);
  ~Server();

  int port() const;
  /// Waits until requests are served. Errors: what loading threw.
  void wait_until_ready();
  /// True once `wait_until_ready` would not wait.
  bool is_settled() const;
  /// Stops accepting, refuses what waits, lets active requests go on for at most `grace_seconds`, and ends
  /// every thread.
  void shut_down(double grace_seconds);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mererun
