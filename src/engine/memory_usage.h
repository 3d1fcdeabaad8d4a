#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mererun {

/// Physical memory of this process, bytes.
struct MemoryUsage {
  std::uint64_t resident = 0;
  std::uint64_t peak = 0;  // largest `resident` since the start or the last reset
};

/// From /proc/self/status; no value where the system does not tell.
std::optional<MemoryUsage> memory_usage();

/// Starts the peak over at the present use. False where the system refuses (the peak then counts from the
/// start).
bool reset_peak_memory();

/// Memory that the system can give without swapping, bytes; no value where it does not tell.
std::optional<std::uint64_t> available_memory();

/// The numbers of a text like /proc/self/status (fields VmRSS and VmHWM, in kB).
std::optional<MemoryUsage> parse_memory_status(std::string_view status);

}  // namespace mererun
