#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mererun {

/// Physical cores this process may run on: hardware threads of one core count once, and a container's CPU
/// quota (cgroup v2) is a bound. At least 1.
int physical_core_count();

/// Threads that are worth starting where `asked` were asked for: physical_core_count() for 0, and never more
/// than the hardware threads this process may run on (and its quota pays for): more of them wait for each
/// other.
int usable_threads(int asked);

/// Starts `count` threads, thread i with work(i). Where the system refuses one, `stop`, which has to make
/// work return, is called and the threads that run are joined. Errors: kOutOfMemory then.
std::vector<std::thread> start_threads(int count, const std::function<void(int)>& work,
                                       const std::function<void()>& stop);

/// A fixed set of threads that share loops. The caller is worker 0; the others wait between loops, spinning
/// for some tens of microseconds and then parked in the kernel.
///
/// On a machine with more work than cores a worker may be off its core for many milliseconds. Parts that no
/// worker has begun are then computed by the caller, and after a wait for a part that was begun and left, the
/// caller works alone for some multiple of what it waited.
///
/// Thread-safety: one thread at a time; a loop's body must not start another loop.
class ThreadPool {
 public:
  /// `threads` workers, the caller included; 0: physical_core_count(). Errors: those of start_threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(begin, end, worker) for parts that make up [0, n), none of them empty: as a rule part w,
  /// [n * w / size, n * (w + 1) / size), on worker w. One worker never runs two calls at once. Returns when
  /// all are done; the first exception of any call is rethrown.
  template <typename Body>
  void parallel_for(std::int64_t n, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        n,
        [](void* context, std::int64_t begin, std::int64_t end, int worker) {
          (*static_cast<Plain*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, std::int64_t begin, std::int64_t end, int worker);

  void run(std::int64_t n, Function function, void* context);
  void work(int worker);
  void stop();
  /// Takes part `part` of round `round` if nobody has: true, and then it must be called.
  bool claim(int part, std::uint32_t round);
  void call_part(int part, int worker);
  void wait_for_workers(double own_seconds);

  /// On a line of its own: each is written by two threads at most.
  struct alignas(64) Claim {
    std::atomic<std::uint32_t> round{0};
  };

  std::vector<std::thread> threads_;
  // Written by the caller before `round_` advances, read by workers after they saw it.
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};  // parts that are not finished
  std::unique_ptr<Claim[]> claims_;                    // [size] the round in which each part was last taken
  std::chrono::steady_clock::time_point alone_until_{};
  std::atomic<bool> stop_{false};
};

}  // namespace mererun
