#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mererun {
namespace {

/// How long a wait spins before it parks: longer than the serial steps between two loops of a decode pass,
/// short enough to leave the core to others when the machine is oversubscribed.
constexpr std::chrono::microseconds kSpin{50};

// A wait this long means that a worker lost its core in the middle of a part. Working alone for a few times
// as long bounds what such waits cost to a fifth of the time, and ends soon after the other load does.
constexpr double kLongWaitSeconds = 0.001;
constexpr double kAloneFactor = 4;
constexpr double kLongestAloneSeconds = 0.05;

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

/// At least 1.
int within_quota(std::size_t cpus) {
  int count = static_cast<int>(cpus);
  if (const int quota = quota_cores()) count = std::min(count, quota);
  return std::max(count, 1);
}

/// The hardware threads that the calling thread may run on; none where the system does not say.
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

int physical_core_count() {
  const std::vector<int> allowed = allowed_cpus();
  std::set<std::string> cores;
  for (const int cpu : allowed) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (std::getline(file, siblings)) cores.insert(siblings);
  }
  return within_quota(cores.empty() ? allowed.size() : cores.size());
}

int usable_threads(int asked) {
  if (asked <= 0) return physical_core_count();
  const std::vector<int> allowed = allowed_cpus();
  return allowed.empty() ? asked : std::min(asked, within_quota(allowed.size()));
}

std::vector<std::thread> start_threads(int count, const std::function<void(int)>& work,
                                       const std::function<void()>& stop) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(count));
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  } catch (const std::exception& error) {
    stop();
    for (std::thread& thread : threads) thread.join();
    fail_expected(ErrorCode::kOutOfMemory, "threads of the program", std::to_string(count),
                  std::to_string(threads.size()) + " (" + error.what() + ")");
  }
  return threads;
}

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = physical_core_count();
  claims_ = std::make_unique<Claim[]>(static_cast<std::size_t>(threads));
  threads_ = start_threads(
      threads - 1, [this](int i) { work(i + 1); }, [this] { stop(); });
}

ThreadPool::~ThreadPool() {
  stop();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::stop() {
  stop_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

bool ThreadPool::claim(int part, std::uint32_t round) {
  // Every part is taken once a round, so a worker that slept through some of them finds another number here.
  std::uint32_t previous = round - 1;
  return claims_[static_cast<std::size_t>(part)].round.compare_exchange_strong(previous, round,
                                                                               std::memory_order_acq_rel);
}

void ThreadPool::call_part(int part, int worker) {
  const std::int64_t begin = count_ * part / size();
  const std::int64_t end = count_ * (part + 1) / size();
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
    seen = round_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!claim(worker, seen)) continue;
    call_part(worker, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::wait_for_workers(double own_seconds) {
  const auto done = [](std::uint32_t left) { return left == 0; };
  if (done(pending_.load(std::memory_order_acquire))) return;
  const auto start = std::chrono::steady_clock::now();
  wait_until(pending_, done);
  const auto end = std::chrono::steady_clock::now();
  const double waited = std::chrono::duration<double>(end - start).count();
  // A worker as fast as this one needs no longer than this one did: it was taken off its core.
  if (waited < kLongWaitSeconds || waited < 2 * own_seconds) return;
  const double alone = std::min(kAloneFactor * waited, kLongestAloneSeconds);
  alone_until_ = end + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(alone));
}

void ThreadPool::run(std::int64_t n, Function function, void* context) {
  if (n <= 0) return;
  if (threads_.empty() || n == 1) return function(context, 0, n, 0);
  const auto start = std::chrono::steady_clock::now();
  if (start < alone_until_) return function(context, 0, n, 0);
  function_ = function;
  context_ = context;
  count_ = n;
  pending_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  const std::uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  claims_[0].round.store(round, std::memory_order_relaxed);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  call_part(0, 0);
  const double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (int part = 1; part < size(); ++part) {
    if (!claim(part, round)) continue;
    call_part(part, 0);
    pending_.fetch_sub(1, std::memory_order_acq_rel);
  }
  wait_for_workers(own);
  if (error_ != nullptr) {
    const std::exception_ptr error = error_;
    error_ = nullptr;
    std::rethrow_exception(error);
  }
}

}  // namespace mererun
