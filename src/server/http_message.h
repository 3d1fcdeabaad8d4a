#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

struct HttpHeader {
  std::string name;
  std::string value;
};

/// One request as it came over a connection. Before the body was read, `body` is empty.
struct HttpRequest {
  std::string method;  // "GET", as sent
  std::string path;    // without the query
  std::vector<HttpHeader> headers = {};
  std::string body = {};
  std::string remote_address = {};  // without the port

  /// Value of the first header of this name (any case); empty when there is none.
  std::string_view header(std::string_view name) const;
};

/// A whole response, or the head of a streamed one.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers = {};
  std::string body = {};
  bool closes = false;  // ends the connection after it
};

/// "Not Found" and the like.
std::string_view reason_phrase(int status);

/// True for texts that are equal but for the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b);
/// True for equal texts, in a time that depends on their lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// The answer to one request. Either `respond`, or `begin_stream` ... `end_stream` completes it; an exchange
/// that is dropped before that answers 500 or, in the middle of a stream, closes the connection.
///
/// Thread-safety: thread-safe; calls of one exchange take effect in their order.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual void respond(HttpResponse response) = 0;
  /// Sends the head now. Whenever nothing was written for a while, `idle_text` is.
  virtual void begin_stream(HttpResponse head, std::string idle_text) = 0;
  virtual void write(std::string text) = 0;
  virtual void end_stream() = 0;
  /// Called once, on a thread of the server, when the client closed its side or the connection failed before
  /// the answer was complete; at once if that happened already. It must not block.
  virtual void on_closed(std::function<void()> callback) = 0;
};

}  // namespace mererun
