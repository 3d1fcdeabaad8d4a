#pragma once

#include <string>
#include <string_view>

namespace mererun::testing {

/// A plain TCP client of 127.0.0.1, to say exactly what a test wants to say.
class SocketClient {
 public:
  explicit SocketClient(int port);
  ~SocketClient();
  SocketClient(SocketClient&& other) noexcept;
  SocketClient& operator=(SocketClient&&) = delete;

  bool is_connected() const { return socket_ >= 0; }
  /// False when the server does not take it.
  bool send(std::string_view text);
  /// Reads until the text read so far holds `text`, the server closes, or 30 seconds pass.
  std::string read_until(std::string_view text);
  /// Reads one response with a Content-Length, head and body.
  std::string read_response();
  std::string read_to_end() { return read_until({}); }
  void shut_down_sending();
  /// Closes at once, with a reset.
  void reset();
  void close();

 private:
  bool read_some();
  int socket_ = -1;
  std::string received_;  // not yet given out
  bool is_at_end_ = false;
};

/// A POST of a JSON body, as text.
std::string post_text(std::string_view path, std::string_view body, std::string_view more_headers = {});

}  // namespace mererun::testing
