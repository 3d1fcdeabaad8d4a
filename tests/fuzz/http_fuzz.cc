// Fuzz target of the HTTP layer, on a real socket. The first byte says where the rest is cut in two writes;
// then the sending side closes. What gets through to the handler is a request within the limits, every answer
// is whole, and the server closes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_server.h"
#include "tests/server/socket_client.h"

namespace {

using namespace mererun;

constexpr HttpLimits kLimits{.max_body_bytes = 512, .max_header_bytes = 1024};

void require(bool holds) {
  if (!holds) std::abort();
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' && c != '\t'; });
}

/// Answers with heads alone, so that all a client reads is heads. They repeat what the client chose.
class HeadHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> screen(const HttpRequest& head) override {
    require(!head.method.empty() && !has_control(head.method));
    require(!has_control(head.path) && head.path.find_first_of("? ") == std::string::npos);
    std::size_t bytes = head.method.size() + head.path.size();
    for (const HttpHeader& header : head.headers) {
      require(!header.name.empty() && !has_control(header.name) && !has_control(header.value));
      bytes += header.name.size() + header.value.size();
    }
    require(bytes <= kLimits.max_header_bytes);
    if (head.path == "/early") return HttpResponse{.status = 403};
    return std::nullopt;
  }
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    require(request.body.size() <= kLimits.max_body_bytes);
    if (request.path == "/dropped") return;
    exchange->respond(
        {.headers = {{"X-Path", request.path}, {"X-Agent", std::string(request.header("User-Agent"))}}});
  }
  HttpResponse refuse(int status, std::string_view message) override {
    return {.status = status, .headers = {{"X-Why", std::string(message)}}};
  }
};

/// "HTTP/1.1 200 OK" and more lines, all printable, an empty one at the end; any number of these.
void check_heads(std::string_view text) {
  while (!text.empty()) {
    require(text.starts_with("HTTP/1.1 "));
    const auto end = text.find("\r\n\r\n");
    require(end != std::string_view::npos);
    for (std::size_t i = 0; i < end; ++i) {
      const bool is_break = text.substr(i, 2) == "\r\n";
      require(is_break || (text[i] >= ' ' && text[i] <= '~'));
      if (is_break) ++i;
    }
    text.remove_prefix(end + 4);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static HeadHandler handler;
  static HttpServer server("127.0.0.1", 0, kLimits, handler);
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  testing::SocketClient client(server.port());
  if (!client.is_connected()) return 0;  // no free port for the moment
  if (client.send(text.substr(0, data[0])) && text.size() > data[0]) client.send(text.substr(data[0]));
  client.shut_down_sending();
  check_heads(client.read_to_end());
  return 0;
}
