#include "engine/environment_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "base/clock.h"
#include "engine/proc_fields.h"

namespace mererun {
namespace {

constexpr double kSampleSeconds = 0.2;
constexpr double kBusyCores = 0.5;   // of all other processes together
constexpr double kNamedCores = 0.1;  // of one of them, to be listed
constexpr int kKernelThreads = 2;    // pid of kthreadd, parent of all threads of the kernel

std::vector<ProcessTimes> read_all_processes() {
  std::vector<ProcessTimes> all;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto times = parse_process_stat(read_proc("/proc/" + name + "/stat")))
      all.push_back(std::move(*times));
  }
  return all;
}

std::vector<CompetingProcess> find_competing() {
  const Stopwatch watch;
  const std::vector<ProcessTimes> before = read_all_processes();
  std::this_thread::sleep_for(std::chrono::duration<double>(kSampleSeconds));
  const std::vector<ProcessTimes> after = read_all_processes();
  return compare_process_times(before, after, watch.seconds(), static_cast<double>(sysconf(_SC_CLK_TCK)),
                               static_cast<int>(getpid()));
}

}  // namespace

std::optional<ProcessTimes> parse_process_stat(std::string_view stat) {
  // pid (name) state ppid ...: the name may hold anything, so it ends at the last parenthesis.
  const auto open = stat.find('(');
  const auto close = stat.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  ProcessTimes times;
  if (std::from_chars(stat.data(), stat.data() + open, times.pid).ec != std::errc()) return std::nullopt;
  times.name = std::string(stat.substr(open + 1, close - open - 1));

  constexpr int kParent = 4, kUser = 14, kSystem = 15;  // fields of proc(5), from 1
  std::string_view rest = stat.substr(close + 1);
  int field = 2;
  while (field < kSystem) {
    const auto begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(begin);
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    ++field;
    std::int64_t value = 0;
    if (field == kParent || field == kUser || field == kSystem) {
      if (std::from_chars(word.data(), word.data() + word.size(), value).ec != std::errc())
        return std::nullopt;
    }
    if (field == kParent) times.parent = static_cast<int>(value);
    if (field == kUser || field == kSystem) times.ticks += static_cast<std::uint64_t>(value);
  }
  return times;
}

std::optional<std::uint64_t> parse_swap_used(std::string_view meminfo) {
  const auto total = proc_number(meminfo, "SwapTotal");
  const auto free = proc_number(meminfo, "SwapFree");
  if (!total || !free || *free > *total) return std::nullopt;
  return (*total - *free) * 1024;
}

std::vector<CompetingProcess> compare_process_times(const std::vector<ProcessTimes>& before,
                                                    const std::vector<ProcessTimes>& after, double seconds,
                                                    double ticks_per_second, int self) {
  std::map<int, std::uint64_t> earlier;
  for (const ProcessTimes& p : before) earlier[p.pid] = p.ticks;
  std::vector<CompetingProcess> competing;
  double total = 0;
  for (const ProcessTimes& p : after) {
    if (p.pid == self || p.parent == self || p.pid == kKernelThreads || p.parent == kKernelThreads) continue;
    const auto found = earlier.find(p.pid);
    const std::uint64_t start = found != earlier.end() ? found->second : 0;  // a new one started from nothing
    if (p.ticks <= start) continue;
    const double cores = static_cast<double>(p.ticks - start) / ticks_per_second / seconds;
    total += cores;
    if (cores >= kNamedCores) competing.push_back({.pid = p.pid, .name = p.name, .cores = cores});
  }
  if (total <= kBusyCores) return {};
  std::sort(competing.begin(), competing.end(), [](const CompetingProcess& a, const CompetingProcess& b) {
    return a.cores != b.cores ? a.cores > b.cores : a.pid < b.pid;
  });
  return competing;
}

std::vector<std::string> EnvironmentReport::invalid_reasons() const {
  std::vector<std::string> reasons;
  for (const CompetingProcess& p : competing) {
    reasons.push_back(
        fmt::format("competing process {} (pid {}) kept {:.1f} cores busy", p.name, p.pid, p.cores));
  }
  if (swap_before && swap_after && *swap_after > *swap_before)
    reasons.push_back(fmt::format("swap grew by {} bytes during the run", *swap_after - *swap_before));
  return reasons;
}

EnvironmentCheck::EnvironmentCheck()
    : report_{.competing = find_competing(),
              .swap_before = parse_swap_used(read_proc("/proc/meminfo")),
              .swap_after = std::nullopt} {}

EnvironmentReport EnvironmentCheck::finish() {
  report_.swap_after = parse_swap_used(read_proc("/proc/meminfo"));
  for (CompetingProcess& p : find_competing()) {
    const auto known = std::find_if(report_.competing.begin(), report_.competing.end(),
                                    [&](const CompetingProcess& other) { return other.pid == p.pid; });
    if (known == report_.competing.end()) report_.competing.push_back(std::move(p));
  }
  return report_;
}

}  // namespace mererun
