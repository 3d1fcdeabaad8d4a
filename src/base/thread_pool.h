#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace mererun {

/// Physical cores this process may run on: hardware threads of one core count once, and a container's CPU
/// quota (cgroup v2) is a bound. At least 1.
int physical_core_count();

/// A fixed set of threads that share loops. The caller is worker 0; the others wait between loops, spinning
/// for some tens of microseconds and then parked in the kernel.
///
/// Thread-safety: one thread at a time; a loop's body must not start another loop.
class ThreadPool {
 public:
  /// `threads` workers, the caller included; 0: physical_core_count().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(begin, end, worker) once per worker with that worker's part of [0, n): part w is
  /// [n * w / size, n * (w + 1) / size), empty parts are skipped. Returns when all are done; the first
  /// exception of any worker is rethrown.
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
  void call_part(int worker);

  std::vector<std::thread> threads_;
  // Written by the caller before `round_` advances, read by workers after they saw it.
  Function function_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};  // workers that have not finished the round
  bool stop_ = false;
};

}  // namespace mererun
