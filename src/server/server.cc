#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"

namespace mererun {
namespace {

constexpr double kFlushSeconds = 3;  // for clients to read the end of their answers

/// Takes the paths that requests take once: target, drafts, and the measurement of what drafts cost.
void warm_up(Engine& engine) {
  GenerateRequest request;
  request.text = "Hello. This is a short text to begin with.";
  request.max_tokens = std::min(16, engine.context_limit() / 2);
  request.ignores_eos = true;
  request.plain_output = true;
  request.uses_prefix_cache = false;
  request.speculation = Speculation::kOn;
  generate(engine, std::move(request));
}

}  // namespace

struct Server::Parts {
  Parts(ServerOptions o, Load l)
      : options(std::move(o)),
        load(std::move(l)),
        service(options.service, metrics),
        http(options.host, options.port, options.http, service),
        settled(ready.get_future().share()) {
    service.set_connection_counter([this] { return http.connections(); });
    thread = std::thread([this] { work(); });
  }

  void work() {
    std::unique_ptr<Engine> engine;
    try {
      engine = load();
      if (options.warms_up) warm_up(*engine);
      const std::lock_guard lock(mutex);
      scheduler.emplace(*engine, options.scheduler, metrics);
      if (is_over) scheduler->stop(0);
      service.set_ready(*engine, *scheduler);
    } catch (const std::exception& error) {
      service.set_failed(error.what());
      ready.set_exception(std::current_exception());
      return;
    }
    ready.set_value();
    scheduler->work();
    // Requests may still look at the engine until the connections are closed.
    http_stopped.get_future().wait();
    scheduler.reset();
  }

  void shut_down(double grace_seconds) {
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(is_over, true)) return;
      if (scheduler) scheduler->stop(grace_seconds);
    }
    http.stop_accepting();
    settled.wait();
    // Active requests end on their own or at the end of the grace; then their answers go out.
    wait_while([this] { return is_busy(); }, grace_seconds + 10);
    wait_while([this] { return http.connections() > 0; }, kFlushSeconds);
    http.stop();
    http_stopped.set_value();
    thread.join();
  }

  template <typename Condition>
  static void wait_while(Condition holds, double seconds) {
    const Stopwatch watch;
    while (holds() && watch.seconds() < seconds) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  bool is_busy() {
    const std::lock_guard lock(mutex);
    return scheduler && scheduler->active() + scheduler->queued() > 0;
  }

  ServerOptions options;
  Load load;
  Metrics metrics;
  Service service;
  HttpServer http;
  std::promise<void> ready, http_stopped;
  std::shared_future<void> settled;
  std::mutex mutex;
  bool is_over = false;
  std::optional<Scheduler> scheduler;
  std::thread thread;
};

Server::Server(ServerOptions options, Load load)
    : parts_(std::make_unique<Parts>(std::move(options), std::move(load))) {}
Server::~Server() { parts_->shut_down(0); }
int Server::port() const { return parts_->http.port(); }
void Server::wait_until_ready() { parts_->settled.get(); }
bool Server::is_settled() const {
  return parts_->settled.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}
void Server::shut_down(double grace_seconds) { parts_->shut_down(grace_seconds); }

}  // namespace mererun
