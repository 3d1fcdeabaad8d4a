#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/strand.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "server/http_connection.h"

namespace mererun {

using http_detail::Connection;
using http_detail::Failure;
using http_detail::Shared;
using http_detail::tcp;
namespace asio = boost::asio;

class HttpServer::Listener {
 public:
  Listener(const std::string& host, int port, HttpLimits limits, HttpHandler& handler)
      : shared_(std::make_shared<Shared>(limits, handler)),
        acceptor_(asio::make_strand(shared_->io)),
        retry_(acceptor_.get_executor()),
        work_(asio::make_work_guard(shared_->io)) {
    listen(host, port);
    accept();
    threads_ = start_threads(
        2, [io = &shared_->io](int) { io->run(); }, [io = &shared_->io] { io->stop(); });
  }
  ~Listener() { stop(); }

  int port() const { return port_; }
  int connections() const {
    const std::lock_guard lock(shared_->mutex);
    return static_cast<int>(shared_->connections.size());
  }

  void stop_accepting() {
    if (shared_->stopping.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      Failure ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
    for_each([](Connection& c) { c.close_if_idle(); });
  }

  void stop() {
    if (threads_.empty()) return;
    stop_accepting();
    for_each([](Connection& c) { c.close(); });
    shared_->stopped = true;
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    // What was begun ends; its answers have nowhere to go.
    for (asio::thread_pool* pool : {&shared_->bodiless_worker, &shared_->workers, &shared_->large_worker})
      pool->join();
    threads_.clear();
  }

 private:
  void listen(const std::string& host, int port) {
    Failure failure;
    const std::string where = fmt::format("listening on {} port {}", host, port);
    tcp::resolver resolver(shared_->io);
    const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, failure);
    if (failure || found.empty()) {
      fail_expected(ErrorCode::kInvalidArgument, where, "an address of this machine",
                    failure ? failure.message() : "none");
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), failure);
    if (!failure) acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
    if (!failure) acceptor_.bind(endpoint, failure);
    if (!failure) acceptor_.listen(1024, failure);
    if (failure) fail_expected(ErrorCode::kIo, where, "a free address", failure.message());
    port_ = acceptor_.local_endpoint().port();
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(shared_->io), [this](Failure failure, tcp::socket socket) {
      if (shared_->stopping.load()) return;
      if (failure) {  // out of file descriptors, most likely: wait for some to come back
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](Failure cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      if (connections() >= shared_->limits.max_connections) {
        Failure ignored;
        socket.non_blocking(true, ignored);
        socket.write_some(
            asio::buffer(std::string_view("HTTP/1.1 503 Service Unavailable\r\nRetry-After: "
                                          "1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")),
            ignored);
      } else {
        auto connection = std::make_shared<Connection>(shared_, std::move(socket));
        {
          const std::lock_guard lock(shared_->mutex);
          shared_->connections[connection.get()] = connection;
        }
        connection->post([](Connection& c) { c.start(); });
      }
      accept();
    });
  }

  template <typename Work>
  void for_each(Work work) {
    std::vector<std::shared_ptr<Connection>> all;
    {
      const std::lock_guard lock(shared_->mutex);
      for (const auto& [ignored, weak] : shared_->connections)
        if (auto connection = weak.lock()) all.push_back(std::move(connection));
    }
    for (const auto& connection : all) connection->post(work);
  }

  std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
  int port_ = 0;
};

HttpServer::HttpServer(const std::string& host, int port, HttpLimits limits, HttpHandler& handler)
    : listener_(std::make_unique<Listener>(host, port, limits, handler)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return listener_->port(); }
int HttpServer::connections() const { return listener_->connections(); }
void HttpServer::stop_accepting() { listener_->stop_accepting(); }
void HttpServer::stop() { listener_->stop(); }

void raise_file_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace mererun
