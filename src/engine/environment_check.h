#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// Another process that used the processors while we looked.
struct CompetingProcess {
  int pid = 0;
  std::string name;
  double cores = 0;  // processors it kept busy, 1.0 = one
};

/// One reading of a process: what /proc/<pid>/stat says.
struct ProcessTimes {
  int pid = 0;
  int parent = 0;
  std::string name;
  std::uint64_t ticks = 0;  // user and system time so far
};

/// Parses one /proc/<pid>/stat. No value for a text of another form.
std::optional<ProcessTimes> parse_process_stat(std::string_view stat);

/// Swap in use, in bytes, of a text like /proc/meminfo.
std::optional<std::uint64_t> parse_swap_used(std::string_view meminfo);

/// What ran beside us between two readings: nothing unless all other processes together used more than half
/// a core, and then those that used at least a tenth, busiest first. Left out: `self`, its children and the
/// kernel's threads.
std::vector<CompetingProcess> compare_process_times(const std::vector<ProcessTimes>& before,
                                                    const std::vector<ProcessTimes>& after, double seconds,
                                                    double ticks_per_second, int self);

/// What a report says about the machine around a run.
struct EnvironmentReport {
  std::vector<CompetingProcess> competing;  // seen before or after the run, each once
  std::optional<std::uint64_t> swap_before;
  std::optional<std::uint64_t> swap_after;

  /// Why the timings are no evidence; empty for a valid run.
  std::vector<std::string> invalid_reasons() const;
};

/// Watches for what spoils timings: other processes that keep more than half a core busy (another engine, a
/// build), and swap that grows. Looks for 0.2 s when made and again at `finish`, never in between.
///
/// Thread-safety: one thread only.
class EnvironmentCheck {
 public:
  EnvironmentCheck();
  EnvironmentReport finish();

 private:
  EnvironmentReport report_;
};

}  // namespace mererun
