#include "engine/memory_usage.h"

#include <fstream>

#include "engine/proc_fields.h"

namespace mererun {

std::optional<MemoryUsage> parse_memory_status(std::string_view status) {
  const auto resident = proc_number(status, "VmRSS");
  const auto peak = proc_number(status, "VmHWM");
  if (!resident || !peak) return std::nullopt;
  return MemoryUsage{.resident = *resident * 1024, .peak = *peak * 1024};
}

std::optional<MemoryUsage> memory_usage() { return parse_memory_status(read_proc("/proc/self/status")); }

std::optional<std::uint64_t> available_memory() {
  const auto kilobytes = proc_number(read_proc("/proc/meminfo"), "MemAvailable");
  if (!kilobytes) return std::nullopt;
  return *kilobytes * 1024;
}

bool reset_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n";  // proc(5): 5 resets the peak resident set size
  return static_cast<bool>(file.flush());
}

}  // namespace mererun
