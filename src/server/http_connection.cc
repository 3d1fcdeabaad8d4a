#include "server/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/read.hpp>

namespace mererun::http_detail {
namespace {

constexpr std::size_t kReadBytes = 4096;
constexpr std::chrono::milliseconds kLinger{2'000};

bool is_protocol_error(const Failure& failure) {
  return failure.category() == make_error_code(http::error::bad_method).category();
}

/// Header values are one line of printable text whatever a client sent.
std::string safe_value(std::string_view value) {
  std::string out(value);
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

/// Of a body in another coding than chunks nobody can tell the end: its bytes would be taken for the next
/// request.
bool has_unknown_coding(const HttpRequest& request) {
  return std::any_of(request.headers.begin(), request.headers.end(), [](const HttpHeader& header) {
    return equal_ignoring_case(header.name, "Transfer-Encoding") &&
           !equal_ignoring_case(header.value, "chunked");
  });
}

/// Of "/path?query", or of "http://host/path" as clients of proxies write it.
std::string path_of(boost::beast::string_view target) {
  std::string_view path(target.data(), target.size());
  if (const auto scheme = path.find("://"); scheme != std::string_view::npos && path.front() != '/') {
    const auto slash = path.find('/', scheme + 3);
    path = slash == std::string_view::npos ? "/" : path.substr(slash);
  }
  return std::string(path.substr(0, path.find('?')));
}

class ConnectionExchange final : public HttpExchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, std::uint64_t number, std::shared_ptr<Peer> peer)
      : connection_(std::move(connection)), number_(number), peer_(std::move(peer)) {}
  ~ConnectionExchange() override {
    if (!is_complete_.exchange(true)) connection_->post([n = number_](Connection& c) { c.abandon(n); });
  }
  void respond(HttpResponse response) override {
    is_complete_ = true;
    connection_->post([n = number_, r = std::move(response)](Connection& c) { c.respond(n, r); });
  }
  void begin_stream(HttpResponse head, std::string idle_text) override {
    connection_->post([n = number_, h = std::move(head), i = std::move(idle_text)](Connection& c) {
      c.begin_stream(n, h, i);
    });
  }
  void write(std::string text) override {
    connection_->post([n = number_, t = std::move(text)](Connection& c) { c.write(n, t); });
  }
  void end_stream() override {
    is_complete_ = true;
    connection_->post([n = number_](Connection& c) { c.end_stream(n); });
  }
  void on_closed(std::function<void()> callback) override { peer_->watch(std::move(callback)); }

 private:
  std::shared_ptr<Connection> connection_;
  std::uint64_t number_;
  std::shared_ptr<Peer> peer_;
  std::atomic<bool> is_complete_{false};
};

}  // namespace

void Peer::close() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_ || is_done_) return;
    is_closed_ = true;
    call = std::move(callback_);
  }
  if (call) call();
}

void Peer::watch(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (is_done_) return;
    if (!is_closed_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void Peer::finish() {
  std::function<void()> dropped;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  is_done_ = true;
  dropped = std::move(callback_);
}

Connection::Connection(std::shared_ptr<Shared> shared, tcp::socket socket)
    : shared_(std::move(shared)),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      buffer_(shared_->limits.max_header_bytes + 65536) {
  Failure ignored;
  const auto peer = socket_.remote_endpoint(ignored);
  if (!ignored) address_ = peer.address().to_string();
  socket_.set_option(tcp::no_delay(true), ignored);
}

Connection::~Connection() {
  release_body();
  const std::lock_guard lock(shared_->mutex);
  shared_->connections.erase(this);
}

void Connection::start() {
  deadline_ = Clock::now() + shared_->limits.header_timeout;
  arm();
  read_some();
}

void Connection::close_if_idle() {
  if (state_ == State::kIdle) close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  Failure ignored;
  socket_.close(ignored);
  timer_.cancel();
  if (peer_) peer_->close();
}

void Connection::respond(std::uint64_t number, const HttpResponse& response) {
  if (number != number_ || state_ != State::kHandling || is_streaming_) return;
  send_response(response);
}

void Connection::begin_stream(std::uint64_t number, const HttpResponse& head, std::string idle_text) {
  if (number != number_ || state_ != State::kHandling || is_streaming_) return;
  is_streaming_ = true;
  idle_text_ = std::move(idle_text);
  is_chunked_ = version_ >= 11;
  keeps_alive_ = keeps_alive_ && is_chunked_ && !head.closes;
  std::string text = head_text(head);
  if (is_chunked_) text += "Transfer-Encoding: chunked\r\n";
  send(text + "\r\n");
  comment_at_ = Clock::now() + shared_->limits.comment_interval;
  arm();
}

void Connection::write(std::uint64_t number, const std::string& text) {
  if (number != number_ || state_ != State::kHandling || !is_streaming_ || text.empty()) return;
  if (pending_.size() > shared_->limits.max_unsent_bytes) return close();
  comment_at_ = Clock::now() + shared_->limits.comment_interval;
  send(is_chunked_ ? fmt::format("{:x}\r\n{}\r\n", text.size(), text) : text);
}

void Connection::end_stream(std::uint64_t number) {
  if (number != number_ || state_ != State::kHandling || !is_streaming_) return;
  if (is_chunked_) send("0\r\n\r\n");
  finish_exchange();
}

void Connection::abandon(std::uint64_t number) {
  if (number != number_ || state_ != State::kHandling) return;
  if (is_streaming_) return close();
  send_response(shared_->handler.refuse(500, "the request ended without an answer"));
}

void Connection::read_some() {
  is_reading_ = true;
  socket_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Failure failure, std::size_t n) {
                            self->is_reading_ = false;
                            if (!failure) self->buffer_.commit(n);
                            self->on_bytes(failure);
                          });
}

/// Reads on while a request is handled, so that a client that leaves is noticed, also behind bytes that it
/// sent already: what is a pipelined request waits in the buffer.
void Connection::read_ahead() {
  if (buffer_.size() + kReadBytes <= buffer_.max_size()) read_some();
}

void Connection::on_bytes(const Failure& failure) {
  switch (state_) {
    case State::kIdle:
      if (failure && failure != asio::error::operation_aborted) return close();
      return next_request();
    case State::kHandling:
    case State::kFlushing:
      if (!failure) return read_ahead();
      is_peer_gone_ = true;
      if (failure != asio::error::eof) return close();
      if (peer_) peer_->close();
      return;
    case State::kLingering:
      if (failure) return close();
      buffer_.consume(buffer_.size());
      return read_some();
    default: return;
  }
}

/// Begins the request that is in the buffer, or waits for one. Empty lines before it are no part of it.
void Connection::next_request() {
  if (is_reading_) {  // ahead: where its bytes go, nothing may move
    Failure ignored;
    if (buffer_.size() > 0) socket_.cancel(ignored);  // then it comes back here
    return;
  }
  const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  buffer_.consume(std::min(text.find_first_not_of("\r\n"), text.size()));
  return buffer_.size() > 0 ? begin_request() : read_some();
}

void Connection::begin_request() {
  state_ = State::kHeader;
  ++number_;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(shared_->limits.max_header_bytes));
  parser_->body_limit(shared_->limits.max_body_bytes);
  deadline_ = Clock::now() + shared_->limits.header_timeout;
  arm();
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](Failure failure, std::size_t) { self->on_header(failure); });
}

void Connection::on_header(const Failure& failure) {
  if (state_ != State::kHeader) return;
  if (failure) return on_bad_request(failure);
  take_head();
  if (has_unknown_coding(request_))
    return reject(400, "headers: expected no transfer coding but chunked, got another");
  if (auto early = shared_->handler.screen(request_)) {
    state_ = State::kHandling;
    early->closes = early->closes || !parser_->is_done();
    return send_response(*early);
  }
  if (parser_->is_done()) return dispatch();
  if (equal_ignoring_case(request_.header("Expect"), "100-continue")) send("HTTP/1.1 100 Continue\r\n\r\n");
  state_ = State::kBody;
  body_began_ = Clock::now();
  read_body();
}

void Connection::take_head() {
  const auto& message = parser_->get();
  version_ = static_cast<int>(message.version());
  keeps_alive_ = message.keep_alive();
  request_ = {};
  request_.method = std::string(message.method_string());
  is_head_ = request_.method == "HEAD";
  request_.path = path_of(message.target());
  for (const auto& field : message)
    request_.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  request_.remote_address = address_;
}

void Connection::read_body() {
  const HttpLimits& limits = shared_->limits;
  const auto earned = std::chrono::milliseconds(1000 * body_bytes_ / limits.body_bytes_per_second);
  deadline_ = body_began_ + limits.body_grace + earned;
  arm();
  http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](Failure failure, std::size_t) { self->on_body(failure); });
}

void Connection::on_body(const Failure& failure) {
  if (state_ != State::kBody) return;
  if (failure) return on_bad_request(failure);
  const std::size_t size = parser_->get().body().size();
  const std::size_t total = shared_->bodies_bytes += size - body_bytes_;
  body_bytes_ = size;
  if (total > shared_->limits.max_bodies_bytes)
    return reject(503, "too many large requests are being received");
  if (parser_->is_done()) return dispatch();
  read_body();
}

void Connection::on_bad_request(const Failure& failure) {
  if (!is_protocol_error(failure) || failure == http::error::end_of_stream ||
      failure == http::error::partial_message)
    return close();
  if (failure == http::error::body_limit) {
    return reject(413,
                  fmt::format("body: expected at most {} bytes, got more", shared_->limits.max_body_bytes));
  }
  if (failure == http::error::header_limit || failure == http::error::buffer_overflow) {
    return reject(
        431, fmt::format("headers: expected at most {} bytes, got more", shared_->limits.max_header_bytes));
  }
  reject(400, "request: expected HTTP/1.1, got " + failure.message());
}

void Connection::reject(int status, std::string_view message) {
  state_ = State::kHandling;
  HttpResponse response = shared_->handler.refuse(status, message);
  response.closes = true;
  send_response(response);
}

void Connection::release_body() {
  shared_->bodies_bytes -= body_bytes_;
  body_bytes_ = 0;
}

std::string Connection::head_text(const HttpResponse& response) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  if (!response.content_type.empty()) text += fmt::format("Content-Type: {}\r\n", response.content_type);
  for (const HttpHeader& header : response.headers)
    text += fmt::format("{}: {}\r\n", header.name, safe_value(header.value));
  if (!goes_on())
    text += "Connection: close\r\n";
  else if (version_ < 11)
    text += "Connection: keep-alive\r\n";  // without it an HTTP/1.0 client waits for the end
  return text;
}

void Connection::send_response(const HttpResponse& response) {
  if (response.closes) keeps_alive_ = false;
  std::string text = head_text(response);
  if (response.status != 204) text += fmt::format("Content-Length: {}\r\n", response.body.size());
  text += "\r\n";
  if (!is_head_) text += response.body;
  send(text);
  finish_exchange();
}

void Connection::finish_exchange() {
  if (peer_) peer_->finish();
  peer_.reset();
  release_body();
  is_streaming_ = false;
  comment_at_ = deadline_ = kNever;
  keeps_alive_ = goes_on();
  state_ = State::kFlushing;
  if (!is_writing_) on_flushed();
}

void Connection::send(std::string_view text) {
  pending_ += text;
  if (!is_writing_) write_some();
}

void Connection::write_some() {
  if (sent_ == sending_.size()) {
    sending_.clear();
    sending_.swap(pending_);
    sent_ = 0;
  }
  is_writing_ = !sending_.empty();
  write_deadline_ = is_writing_ ? Clock::now() + shared_->limits.write_timeout : kNever;
  if (!is_writing_) return state_ == State::kFlushing ? on_flushed() : void();
  arm();
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](Failure failure, std::size_t n) {
                             if (failure) return self->close();
                             self->sent_ += n;
                             self->write_some();
                           });
}

void Connection::on_flushed() {
  if (keeps_alive_ && !is_peer_gone_) {  // its end is reported once: another read would wait for nothing
    state_ = State::kIdle;
    deadline_ = Clock::now() + shared_->limits.idle_timeout;
    arm();
    return next_request();
  }
  // What the client still sends must be read: closing over it could destroy the answer on its way.
  Failure ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (is_timed_out_ || is_peer_gone_) return close();
  state_ = State::kLingering;
  deadline_ = Clock::now() + kLinger;
  arm();
  buffer_.consume(buffer_.size());
  if (!is_reading_) read_some();
}

void Connection::arm() {
  const auto at = std::min({deadline_, write_deadline_, comment_at_});
  if (at >= armed_at_ || state_ == State::kClosed) return;
  armed_at_ = at;
  timer_.expires_at(at);
  timer_.async_wait([self = shared_from_this()](Failure failure) {
    if (!failure) self->on_timer();
  });
}

void Connection::on_timer() {
  armed_at_ = kNever;
  if (state_ == State::kClosed) return;
  const auto now = Clock::now();
  if (write_deadline_ <= now) return close();
  if (deadline_ <= now) {
    if (state_ != State::kHeader && state_ != State::kBody) return close();
    is_timed_out_ = true;
    return reject(408, "request: expected it whole in time, got a part of it");
  }
  if (comment_at_ <= now && is_streaming_) write(number_, std::string(idle_text_));
  arm();
}

/// A large body takes seconds to understand, and no other request should wait for that; what asks how the
/// server is has no body.
asio::thread_pool& Connection::workers_for(const HttpRequest& request) const {
  if (request.body.empty()) return shared_->bodiless_worker;
  return request.body.size() < shared_->limits.large_body_bytes ? shared_->workers : shared_->large_worker;
}

void Connection::dispatch() {
  state_ = State::kHandling;
  deadline_ = kNever;
  request_.body = std::move(parser_->get().body());
  peer_ = std::make_shared<Peer>();
  auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), number_, peer_);
  asio::thread_pool& workers = workers_for(request_);  // before the request moves away
  asio::post(workers, [shared = shared_, request = std::move(request_), e = std::move(exchange)]() mutable {
    shared->handler.handle(std::move(request), std::move(e));
  });
  request_ = {};
  read_ahead();
}

}  // namespace mererun::http_detail
