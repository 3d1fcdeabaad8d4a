#include "tests/server/socket_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace mererun::testing {

SocketClient::SocketClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{.tv_sec = 30, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const int at_once = 1;  // two sends are two pieces, and the second doesn't wait for the first
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close();
}

SocketClient::~SocketClient() { close(); }

SocketClient::SocketClient(SocketClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      received_(std::move(other.received_)),
      is_at_end_(other.is_at_end_) {}

bool SocketClient::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool SocketClient::read_some() {
  std::array<char, 65536> buffer;
  const ssize_t n = recv(socket_, buffer.data(), buffer.size(), 0);
  is_at_end_ = n <= 0;
  if (n > 0) received_.append(buffer.data(), static_cast<std::size_t>(n));
  return n > 0;
}

std::string SocketClient::read_until(std::string_view text) {
  for (;;) {
    const auto at = text.empty() ? std::string::npos : received_.find(text);
    if (at != std::string::npos) {
      std::string out = received_.substr(0, at + text.size());
      received_.erase(0, out.size());
      return out;
    }
    if (is_at_end_ || !read_some()) return std::exchange(received_, {});
  }
}

std::string SocketClient::read_response() {
  std::string out = read_until("\r\n\r\n");
  const auto at = out.find("Content-Length: ");
  if (at == std::string::npos) return out;
  const auto size = static_cast<std::size_t>(std::strtoull(out.c_str() + at + 16, nullptr, 10));
  while (received_.size() < size && read_some()) {
  }
  out += received_.substr(0, size);
  received_.erase(0, size);
  return out;
}

void SocketClient::shut_down_sending() { shutdown(socket_, SHUT_WR); }

void SocketClient::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void SocketClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

std::string post_text(std::string_view path, std::string_view body, std::string_view more_headers) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", path,
                     more_headers, body.size(), body);
}

}  // namespace mererun::testing
