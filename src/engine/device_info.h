#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mererun {

class Ops;

/// The device that a run computed on, for reports.
struct DeviceInfo {
  std::string name;             // "AMD EPYC 7B13"
  std::string driver;           // what drives it; on the CPU the kernel's release
  std::string instruction_set;  // of the CPU's kernels, "avx2"; empty elsewhere
  std::uint64_t memory_bytes = 0;
  std::optional<double> clock_mhz;
};

/// The processor, from /proc/cpuinfo, /proc/meminfo and uname.
DeviceInfo describe_host();

/// The device of a backend.
DeviceInfo describe_device(const Ops& ops);

}  // namespace mererun
