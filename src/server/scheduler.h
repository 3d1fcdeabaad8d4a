#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/metrics.h"
#include "server/reply.h"

namespace mererun {

/// One admitted request.
struct Job {
  std::string id;
  std::string route;
  std::string content = {};              // for the log, where it is wanted
  std::vector<OutputPiece> pieces = {};  // since the last step; filled by the run's listener
  std::unique_ptr<Run> run = {};
  std::unique_ptr<Reply> reply = {};
  std::shared_ptr<CancelFlag> cancel = {};

  Stopwatch age = {};
  ReplyTimes times = {};
  double last_step = 0;            // age at its end
  std::int64_t tokens_before = 0;  // tokens at that time
  std::uint64_t memory = 0;        // reserved
};

struct SchedulerOptions {
  int max_active = 1;
  int max_queued = 64;
  double timeout_seconds = 0;      // of a request, waiting included; 0: none
  std::uint64_t memory_bytes = 0;  // for the sequences of active requests; 0: no limit
};

/// Lets requests take turns on one engine: first come, first served up to `max_active`, and those round by
/// round. Each gives what it gives alone.
///
/// Thread-safety: thread-safe; `work` runs on the one thread that owns the engine.
class Scheduler {
 public:
  Scheduler(Engine& engine, SchedulerOptions options, Metrics& metrics);
  ~Scheduler();

  /// A place in the queue, given back when it is dropped unused.
  class Place {
   public:
    explicit Place(Scheduler& scheduler) : scheduler_(&scheduler) {}
    Place(Place&& other) noexcept : scheduler_(std::exchange(other.scheduler_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (scheduler_ != nullptr) scheduler_->release();
    }
    void use() { scheduler_ = nullptr; }

   private:
    Scheduler* scheduler_;
  };
  /// Errors: ApiError 503 when the queue is full, the engine has failed or is shutting down.
  Place reserve();
  /// Memory that a run takes to its end. Errors: ApiError 503 when that is more than there is.
  std::uint64_t memory_for(const Run& run) const;
  void submit(Place place, std::unique_ptr<Job> job);
  /// A cancel flag was set.
  void wake();

  /// Serves until `stop` and all is answered. On the engine's thread.
  void work();
  /// Active requests may go on for `grace_seconds`; waiting ones are refused.
  void stop(double grace_seconds);

  int active() const { return num_active_.load(); }
  int queued() const { return in_system_.load() - num_active_.load(); }
  /// The first device error; the engine is unusable after it.
  std::optional<std::string> failure() const;
  const SchedulerOptions& options() const { return options_; }

 private:
  enum class Ending { kClientGone, kTimeout, kShutdown };
  using Jobs = std::deque<std::unique_ptr<Job>>;

  void release() { --in_system_; }
  bool wait_for_work();
  void sweep(Jobs& jobs);
  std::optional<Ending> ending_of(const Job& job) const;
  void activate();
  void step(std::unique_ptr<Job> job);
  void measure_step(Job& job);
  void complete(std::unique_ptr<Job> job);
  void fail(std::unique_ptr<Job> job, const ApiError& error);
  void fail_all(const ApiError& error);
  void count(const Job& job, const GenerateResult& result, std::string_view finish);
  void on_device_error(const Error& error);

  Engine& engine_;
  const SchedulerOptions options_;
  Metrics& metrics_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Jobs arrived_;  // under the mutex
  bool is_woken_ = false;
  bool is_stopping_ = false;
  double grace_seconds_ = 0;
  Stopwatch since_stop_;
  std::optional<std::string> failure_;

  std::atomic<int> in_system_{0};
  std::atomic<int> num_active_{0};
  Jobs waiting_, active_;  // of the engine's thread; active_ in the order of their turns
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace mererun
