// The HTTP layer on real sockets, with a handler that answers in simple ways.
#include "server/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "tests/server/socket_client.h"

namespace mererun {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::SocketClient;
using ::testing::StartsWith;

/// /echo answers method, path and body; /stream is answered by the test; /refused is refused by its head;
/// /slow takes until the test lets it go.
class TestHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> screen(const HttpRequest& head) override {
    if (head.path == "/refused") return HttpResponse{.status = 403, .body = "refused"};
    return std::nullopt;
  }
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (request.path == "/dropped") return;
    if (request.path == "/slow") {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_released_; });
    }
    if (request.path == "/stream") {
      exchange->on_closed([this] {
        const std::lock_guard lock(mutex_);
        ++closed_;
        changed_.notify_all();
      });
      exchange->begin_stream({.content_type = "text/event-stream"}, ": idle\n\n");
      const std::lock_guard lock(mutex_);
      streams_.push_back(std::move(exchange));
      changed_.notify_all();
      return;
    }
    exchange->respond({.headers = {{"X-Odd", "a\r\nb: c"}},
                       .body = fmt::format("{} {} {}", request.method, request.path, request.body)});
  }
  HttpResponse refuse(int status, std::string_view message) override {
    return {.status = status, .body = std::string(message)};
  }

  std::shared_ptr<HttpExchange> stream(std::size_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return streams_.size() > index; });
    return streams_[index];
  }
  void wait_closed(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ >= count; });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }
  void forget_streams() {
    const std::lock_guard lock(mutex_);
    streams_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> streams_;
  int closed_ = 0;
  bool is_released_ = false;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServer& start(HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>("127.0.0.1", 0, limits, handler_);
    return *server_;
  }
  ~HttpServerTest() override {
    handler_.forget_streams();
    server_.reset();
  }
  SocketClient client() { return SocketClient(server_->port()); }

  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

/// They stop sending once they have asked; some of that comes after the answer's head, which then says that
/// the connection stays.
TEST_F(HttpServerTest, ClientsThatStopSendingAreNotKept) {
  HttpServer& server = start({.idle_timeout = std::chrono::hours(1)});
  for (int i = 0; i < 1000 && server.connections() == 0; ++i) {
    SocketClient client(server.port());
    client.send("GET /echo HTTP/1.1\r\n\r\n");
    client.shut_down_sending();
    EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 200"));
    for (int wait = 0; wait < 10'000 && server.connections() > 0; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(server.connections(), 0);
}

TEST_F(HttpServerTest, ServesSeveralRequestsOnOneConnection) {
  start();
  SocketClient c = client();
  for (int i = 0; i < 3; ++i) {
    c.send(testing::post_text("/echo?x=1", "body"));
    const std::string answer = c.read_response();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nPOST /echo body"));
    EXPECT_THAT(answer, HasSubstr("X-Odd: a??b: c\r\n"));  // no header from a value
  }
  c.send("GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(c.read_to_end(), HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  SocketClient c = client();
  c.send(testing::post_text("/echo", "one") + testing::post_text("/echo", "two") +
         "GET /echo HTTP/1.1\r\n\r\n");
  EXPECT_THAT(c.read_response(), EndsWith("POST /echo one"));
  EXPECT_THAT(c.read_response(), EndsWith("POST /echo two"));
  EXPECT_THAT(c.read_response(), EndsWith("GET /echo "));
}

TEST_F(HttpServerTest, APipelinedRequestWaitsForTheStreamBeforeIt) {
  start();
  SocketClient c = client();
  c.send("GET /stream HTTP/1.1\r\n\r\n");
  c.read_until("\r\n\r\n");
  for (const std::string_view part :
       {"\r\n", "GET /ec", "ho HTTP/1.1\r\n\r\nGET /echo?2 HTT", "P/1.1\r\n\r\n"})
    c.send(part);
  handler_.stream(0)->write("first");
  c.read_until("first");
  handler_.stream(0)->end_stream();
  c.read_until("0\r\n\r\n");
  EXPECT_THAT(c.read_response(), EndsWith("GET /echo "));
  EXPECT_THAT(c.read_response(), EndsWith("GET /echo "));
  c.send("GET /echo HTTP/1.1\r\n\r\n");  // and the connection goes on
  EXPECT_THAT(c.read_response(), EndsWith("GET /echo "));
}

TEST_F(HttpServerTest, TakesWhatOldClientsAndProxiesSend) {
  start();
  SocketClient lines = client();  // empty lines around requests
  lines.send("\r\n" + testing::post_text("/echo", "one") + "\r\n");
  EXPECT_THAT(lines.read_response(), EndsWith("POST /echo one"));
  lines.send("\n\r\nGET /echo HTTP/1.1\r\n\r\n");
  EXPECT_THAT(lines.read_response(), EndsWith("GET /echo "));
  SocketClient older = client();  // a client of HTTP/1.0 is told that its connection stays
  for (int i = 0; i < 2; ++i) {
    older.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(older.read_response(),
                AllOf(HasSubstr("Connection: keep-alive\r\n"), EndsWith("GET /echo ")));
  }
  older.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_THAT(older.read_to_end(), AllOf(HasSubstr("Connection: close\r\n"), EndsWith("GET /echo ")));
  SocketClient proxied = client();  // targets that name the host
  proxied.send("GET http://localhost:80/echo?x HTTP/1.1\r\n\r\n");
  EXPECT_THAT(proxied.read_response(), EndsWith("GET /echo "));
  proxied.send("GET http://localhost HTTP/1.1\r\n\r\n");
  EXPECT_THAT(proxied.read_response(), EndsWith("GET / "));
}

TEST_F(HttpServerTest, TakesBodiesByteByByteAndInChunks) {
  start();
  SocketClient slow = client();
  for (const char c : testing::post_text("/echo", "slowly")) slow.send({&c, 1});
  EXPECT_THAT(slow.read_response(), EndsWith("POST /echo slowly"));
  SocketClient chunked = client();
  chunked.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.read_response(), EndsWith("POST /echo abcde"));
  SocketClient careful = client();
  careful.send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(careful.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  careful.send("ok");
  EXPECT_THAT(careful.read_response(), EndsWith("POST /echo ok"));
}

TEST_F(HttpServerTest, RefusesWhatExceedsItsLimits) {
  start({.max_body_bytes = 1000, .max_header_bytes = 2000});
  const std::string tail = "\r\n\r\n";
  SocketClient big = client();
  big.send("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_THAT(big.read_to_end(),
              AllOf(StartsWith("HTTP/1.1 413"), EndsWith("body: expected at most 1000 bytes, got more")));
  SocketClient chunked = client();
  chunked.send("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x') +
               "\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.read_to_end(), StartsWith("HTTP/1.1 413"));
  SocketClient flood = client();
  flood.send("GET /echo HTTP/1.1\r\n");
  std::string line;
  for (int i = 0; i < 100; ++i) line += fmt::format("X-{}: {}\r\n", i, std::string(100, 'h'));
  flood.send(line);
  EXPECT_THAT(flood.read_to_end(), StartsWith("HTTP/1.1 431"));
  SocketClient noise = client();
  noise.send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_THAT(noise.read_to_end(), StartsWith("HTTP/1.1 400"));
  SocketClient negative = client();
  negative.send("POST /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n");
  EXPECT_THAT(negative.read_to_end(), StartsWith("HTTP/1.1 400"));
  SocketClient fine = client();
  fine.send(testing::post_text("/echo", std::string(1000, 'x')));
  EXPECT_THAT(fine.read_response(), StartsWith("HTTP/1.1 200"));
}

/// What follows such a head is a body that nobody can measure, never a second request.
TEST_F(HttpServerTest, NothingBehindAnUnknownTransferCodingIsRead) {
  start();
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "xchunked"}) {
    SocketClient sly = client();
    sly.send(fmt::format("POST /echo HTTP/1.1\r\nTransfer-Encoding: {}\r\n\r\n", coding) +
             testing::post_text("/echo", "hidden"));
    const std::string answer = sly.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400")) << coding;
    EXPECT_EQ(answer.find("hidden"), std::string::npos) << coding;
  }
}

/// Bodies that take long to understand hold up their own kind only, and nothing holds up a look at the
/// server.
TEST_F(HttpServerTest, LargeBodiesHoldUpNobodyElse) {
  start({.large_body_bytes = 1000});
  std::vector<SocketClient> slow;
  const auto send = [&](std::size_t size) {
    slow.push_back(client());
    slow.back().send(testing::post_text("/slow", std::string(size, 'x')));
  };
  for (int i = 0; i < 3; ++i) send(1000);
  SocketClient small = client(), look = client();
  for (int i = 0; i < 3; ++i) {
    small.send(testing::post_text("/echo", "small"));
    EXPECT_THAT(small.read_response(), EndsWith("POST /echo small"));
  }
  for (int i = 0; i < 5; ++i) send(999);
  look.send("GET /echo HTTP/1.1\r\n\r\n");
  EXPECT_THAT(look.read_response(), EndsWith("GET /echo "));
  handler_.release();
  for (SocketClient& each : slow) EXPECT_THAT(each.read_response(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowSendersAreCutOff) {
  start({.header_timeout = std::chrono::milliseconds(100), .body_grace = std::chrono::milliseconds(100)});
  SocketClient silent = client();
  EXPECT_EQ(silent.read_to_end(), "");
  SocketClient head = client();
  head.send("GET /echo HT");
  EXPECT_THAT(head.read_to_end(), StartsWith("HTTP/1.1 408"));
  SocketClient body = client();
  body.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_THAT(body.read_to_end(), StartsWith("HTTP/1.1 408"));
}

TEST_F(HttpServerTest, ARefusalDoesNotWaitForTheBody) {
  start();
  SocketClient c = client();
  c.send("POST /refused HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nabc");
  EXPECT_THAT(c.read_to_end(), EndsWith("refused"));
  SocketClient again = client();
  again.send("GET /refused HTTP/1.1\r\n\r\nGET /echo HTTP/1.1\r\n\r\n");
  EXPECT_THAT(again.read_response(), EndsWith("refused"));
  EXPECT_THAT(again.read_response(), EndsWith("GET /echo "));
}

TEST_F(HttpServerTest, AnExchangeThatIsDroppedIsAnError) {
  start();
  SocketClient c = client();
  c.send("GET /dropped HTTP/1.1\r\n\r\n");
  EXPECT_THAT(c.read_response(), StartsWith("HTTP/1.1 500"));
}

TEST_F(HttpServerTest, StreamsChunksAndIdleComments) {
  start({.comment_interval = std::chrono::milliseconds(30)});
  SocketClient c = client();
  c.send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_THAT(c.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(c.read_until("8\r\n: idle\n\n\r\n"), "8\r\n: idle\n\n\r\n");
  handler_.stream(0)->write("data: x\n\n");
  EXPECT_THAT(c.read_until("9\r\ndata: x\n\n\r\n"), EndsWith("9\r\ndata: x\n\n\r\n"));
  handler_.stream(0)->end_stream();
  EXPECT_THAT(c.read_until("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
  c.send("GET /echo HTTP/1.1\r\n\r\n");  // the connection goes on
  EXPECT_THAT(c.read_response(), EndsWith("GET /echo "));
}

TEST_F(HttpServerTest, OlderClientsGetAStreamThatEndsWithTheConnection) {
  start();
  SocketClient c = client();
  c.send("GET /stream HTTP/1.0\r\n\r\n");
  handler_.stream(0)->write("data: x\n\n");
  handler_.stream(0)->end_stream();
  EXPECT_THAT(c.read_to_end(), EndsWith("\r\n\r\ndata: x\n\n"));
}

TEST_F(HttpServerTest, EveryWayToLeaveIsNoticed) {
  start();
  SocketClient closed = client(), reset = client(), half = client(), pipelined = client();
  for (SocketClient* c : {&closed, &reset, &half}) {
    c->send("GET /stream HTTP/1.1\r\n\r\n");
    c->read_until("\r\n\r\n");
  }
  closed.close();
  handler_.wait_closed(1);
  reset.reset();
  handler_.wait_closed(2);
  half.shut_down_sending();
  handler_.wait_closed(3);
  pipelined.send("GET /stream HTTP/1.1\r\n\r\n\r\nGET /echo HTTP/1.1\r\n\r\n");
  pipelined.read_until("\r\n\r\n");
  pipelined.send("GET /echo");
  pipelined.close();  // behind bytes that nobody has looked at
  handler_.wait_closed(4);
  handler_.stream(2)->write("still");  // who only stopped sending can still read
  EXPECT_THAT(half.read_until("still"), EndsWith("still"));
}

TEST_F(HttpServerTest, AThousandConnectionsAtOnce) {
  raise_file_limit();
  HttpServer& server = start();
  std::vector<SocketClient> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().is_connected()) << i;
    clients.back().send(i % 2 == 0 ? "GET /stream HTTP/1.1\r\n\r\n" : "GET /ec");
  }
  SocketClient other = client();
  other.send("GET /echo HTTP/1.1\r\n\r\n");
  EXPECT_THAT(other.read_response(), EndsWith("GET /echo "));
  handler_.stream(499);
  EXPECT_GE(server.connections(), 1000);
  for (std::size_t i = 0; i < clients.size(); i += 2) clients[i].read_until("\r\n\r\n");
  for (std::size_t i = 1; i < clients.size(); i += 2) {
    clients[i].send("ho HTTP/1.1\r\n\r\n");
    EXPECT_THAT(clients[i].read_response(), EndsWith("GET /echo "));
  }
  clients.clear();
  handler_.wait_closed(500);
}

/// Entries of a folder of /proc/self.
std::ptrdiff_t count_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
}

TEST_F(HttpServerTest, ManyShortConnectionsLeaveNothing) {
  HttpServer& server = start();
  const auto connect = [&](int times) {
    for (int i = 0; i < times; ++i) {
      SocketClient c = client();
      c.send("GET /echo HTTP/1.1\r\nConnection: close\r\n\r\n");
      ASSERT_THAT(c.read_to_end(), EndsWith("GET /echo ")) << i;
    }
    while (server.connections() > 0) std::this_thread::yield();
  };
  connect(100);
  const auto threads = count_of("/proc/self/task"), files = count_of("/proc/self/fd"), maps = mappings();
  connect(5000);
  EXPECT_EQ(count_of("/proc/self/task"), threads);
  EXPECT_LE(mappings(), maps + 16);  // the allocator's; a stack for each connection would be thousands
  EXPECT_EQ(count_of("/proc/self/fd"), files);
}

TEST_F(HttpServerTest, StoppingEndsWhatRunsInOrder) {
  HttpServer& server = start();
  SocketClient idle = client(), busy = client();
  idle.send("GET /echo HTTP/1.1\r\n\r\n");
  idle.read_response();
  busy.send("GET /stream HTTP/1.1\r\n\r\n");
  busy.read_until("\r\n\r\n");
  server.stop_accepting();
  EXPECT_EQ(idle.read_to_end(), "");
  handler_.stream(0)->write("last");
  handler_.stream(0)->end_stream();
  EXPECT_THAT(busy.read_to_end(), EndsWith("4\r\nlast\r\n0\r\n\r\n"));
  EXPECT_FALSE(client().is_connected());
}

TEST_F(HttpServerTest, APortInUseIsSaid) {
  const int port = start().port();
  TestHandler handler;
  try {
    HttpServer second("127.0.0.1", port, {}, handler);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(port)));
  }
}

}  // namespace
}  // namespace mererun
