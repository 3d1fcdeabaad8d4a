#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mererun {
namespace {

/// How long a wait spins before it parks: longer than the serial steps between two loops of a decode pass,
/// short enough to leave the core to others when the machine is oversubscribed.
constexpr std::chrono::microseconds kSpin{50};

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns once done(value) holds for the counter's value.
template <typename Done>
void wait_until(std::atomic<std::uint32_t>& counter, Done done) {
  std::uint32_t value = counter.load(std::memory_order_acquire);
  if (done(value)) return;
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      relax();
      value = counter.load(std::memory_order_acquire);
      if (done(value)) return;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  while (!done(value)) {
    counter.wait(value, std::memory_order_acquire);
    value = counter.load(std::memory_order_acquire);
  }
}

/// Cores a cgroup v2 quota pays for, rounded up; 0 where there is none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  const double cores = std::strtod(quota.c_str(), nullptr) / period;
  return std::max(1, static_cast<int>(cores + 0.999));
}

}  // namespace

int physical_core_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::set<std::string> cores;
  int threads = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      ++threads;
      std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                         "/topology/thread_siblings_list");
      std::string siblings;
      if (std::getline(file, siblings)) cores.insert(siblings);
    }
  }
  int count = cores.empty() ? threads : static_cast<int>(cores.size());
  if (const int quota = quota_cores()) count = std::min(count, quota);
  return std::max(count, 1);
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = physical_core_count();
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  for (int w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::call_part(int worker) {
  const std::int64_t begin = count_ * worker / size();
  const std::int64_t end = count_ * (worker + 1) / size();
  if (begin == end) return;
  try {
    function_(context_, begin, end, worker);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_until(round_, [seen](std::uint32_t round) { return round != seen; });
    ++seen;
    if (stop_) return;
    call_part(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::run(std::int64_t n, Function function, void* context) {
  if (n <= 0) return;
  if (threads_.empty() || n == 1) return function(context, 0, n, 0);
  function_ = function;
  context_ = context;
  count_ = n;
  pending_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call_part(0);
  wait_until(pending_, [](std::uint32_t left) { return left == 0; });
  if (error_ != nullptr) {
    const std::exception_ptr error = error_;
    error_ = nullptr;
    std::rethrow_exception(error);
  }
}

}  // namespace mererun
