#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace mererun {

/// What a connection may take. Times bound each phase as a whole, so a sender cannot stretch one by sending a
/// byte now and then.
struct HttpLimits {
  std::size_t max_body_bytes = std::size_t{32} << 20;
  std::size_t large_body_bytes = std::size_t{256} << 10;  // from here on handled apart
  std::size_t max_header_bytes = std::size_t{32} << 10;
  std::size_t max_bodies_bytes = std::size_t{512} << 20;  // of all requests that are being read or handled
  std::size_t max_unsent_bytes = std::size_t{16} << 20;   // of a stream that its client does not read
  int max_connections = 4096;
  std::chrono::milliseconds header_timeout{10'000};    // from the first byte (or the connection) to the last
  std::chrono::milliseconds body_grace{20'000};        // then a body must have come at...
  std::size_t body_bytes_per_second = 4096;            // ...this rate
  std::chrono::milliseconds idle_timeout{75'000};      // between two requests
  std::chrono::milliseconds write_timeout{60'000};     // without the client taking a byte
  std::chrono::milliseconds comment_interval{10'000};  // before a silent stream sends its idle text
};

/// What to do with requests.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Looks at the head of a request, before its body is read; an answer ends it there. On an I/O thread: must
  /// not block.
  virtual std::optional<HttpResponse> screen(const HttpRequest& head) = 0;
  /// Answers a request, now or later. On a worker thread; must not throw.
  virtual void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  /// The answer to a request that is no HTTP or exceeds a limit. On an I/O thread.
  virtual HttpResponse refuse(int status, std::string_view message) = 0;
};

/// An HTTP/1.1 server: keep-alive, pipelining, chunked bodies and replies, 100-continue.
///
/// Connections are served by two I/O threads, requests handled by two worker threads, those without a body
/// and those with a large one by one of their own, however many connections there are. The socket is read
/// while a request is handled, so a client that leaves is noticed at once. A client that closes its sending
/// side counts as gone: its exchange's `on_closed` is called; what is answered all the same is still sent.
///
/// Thread-safety: thread-safe.
class HttpServer {
 public:
  /// Binds and listens; `port` 0 takes any free one. The handler must outlive the server.
  /// Errors: kInvalidArgument for an address that is none, kIo when it cannot be bound.
  HttpServer(const std::string& host, int port, HttpLimits limits, HttpHandler& handler);
  ~HttpServer();

  int port() const;
  int connections() const;
  /// Closes the listening socket and idle connections; running exchanges go on, then their connections close.
  void stop_accepting();
  /// Closes every connection and ends the threads.
  void stop();

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

/// Lets this process open as many files (and so connections) as the system allows it to.
void raise_file_limit();

}  // namespace mererun
