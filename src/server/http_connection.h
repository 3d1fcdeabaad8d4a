#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "server/http_server.h"

namespace mererun::http_detail {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Failure = boost::system::error_code;
using Clock = std::chrono::steady_clock;
inline constexpr Clock::time_point kNever = Clock::time_point::max();

class Connection;

/// What all connections of a server share.
struct Shared {
  Shared(const HttpLimits& http_limits, HttpHandler& http_handler)
      : limits(http_limits), handler(http_handler) {}

  const HttpLimits limits;
  HttpHandler& handler;
  asio::io_context io{2};
  asio::thread_pool bodiless_worker{1}, workers{2}, large_worker{1};  // who handles which requests
  std::atomic<std::size_t> bodies_bytes{0};
  std::atomic<bool> stopping{false};  // no further requests
  std::atomic<bool> stopped{false};   // no further I/O
  std::mutex mutex;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
};

/// Whether the client of one exchange is still there.
///
/// Thread-safety: thread-safe.
class Peer {
 public:
  /// The client is gone: calls what watches, once.
  void close();
  void watch(std::function<void()> callback);
  /// The exchange is over; nothing is called any more.
  void finish();

 private:
  std::mutex mutex_;
  bool is_closed_ = false, is_done_ = false;
  std::function<void()> callback_;
};

/// One client. Everything but `post` runs on the strand of the socket.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, tcp::socket socket);
  ~Connection();

  /// Runs `work(*this)` on the strand; nothing once the server has stopped.
  template <typename Work>
  void post(Work work) {
    if (shared_->stopped.load()) return;
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), work = std::move(work)]() mutable { work(*self); });
  }

  void start();
  void close_if_idle();
  void close();

  // The exchange's calls; those of an exchange that is over do nothing.
  void respond(std::uint64_t number, const HttpResponse& response);
  void begin_stream(std::uint64_t number, const HttpResponse& head, std::string idle_text);
  void write(std::uint64_t number, const std::string& text);
  void end_stream(std::uint64_t number);
  void abandon(std::uint64_t number);

 private:
  /// kFlushing: the answer goes out; kLingering: it went out, and what still comes is read and dropped.
  enum class State { kIdle, kHeader, kBody, kHandling, kFlushing, kLingering, kClosed };

  void read_some();
  void read_ahead();
  void next_request();
  void on_bytes(const Failure& failure);
  void begin_request();
  void on_header(const Failure& failure);
  void take_head();
  void read_body();
  void on_body(const Failure& failure);
  void on_bad_request(const Failure& failure);
  void reject(int status, std::string_view message);
  void dispatch();
  asio::thread_pool& workers_for(const HttpRequest& request) const;
  void release_body();
  std::string head_text(const HttpResponse& response) const;
  bool goes_on() const { return keeps_alive_ && !is_peer_gone_ && !shared_->stopping.load(); }

  void send_response(const HttpResponse& response);
  void finish_exchange();
  void send(std::string_view text);
  void write_some();
  void on_flushed();
  void arm();
  void on_timer();

  std::shared_ptr<Shared> shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string address_;

  State state_ = State::kIdle;
  bool is_reading_ = false, is_writing_ = false, is_timed_out_ = false;
  bool is_peer_gone_ = false;  // it closed its sending side
  Clock::time_point deadline_ = kNever, write_deadline_ = kNever, comment_at_ = kNever, armed_at_ = kNever;

  std::uint64_t number_ = 0;  // of the current exchange
  std::shared_ptr<Peer> peer_;
  HttpRequest request_;
  Clock::time_point body_began_;
  std::size_t body_bytes_ = 0;  // counted in shared_->bodies_bytes
  int version_ = 11;
  bool keeps_alive_ = false, is_head_ = false, is_streaming_ = false, is_chunked_ = false;
  std::string idle_text_;

  std::string pending_, sending_;  // text to send; the part that is being sent
  std::size_t sent_ = 0;
};

}  // namespace mererun::http_detail
