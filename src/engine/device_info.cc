#include "engine/device_info.h"

#include <sys/utsname.h>

#include <charconv>

#include "engine/proc_fields.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cuda_device.h"

namespace mererun {

DeviceInfo describe_host() {
  DeviceInfo info;
  const std::string cpuinfo = read_proc("/proc/cpuinfo");
  info.name = proc_text(cpuinfo, "model name");
  utsname system{};
  if (uname(&system) == 0) {
    if (info.name.empty()) info.name = system.machine;  // not every architecture names its processor
    info.driver = std::string(system.sysname) + " " + system.release;
  }
  info.memory_bytes = proc_number(read_proc("/proc/meminfo"), "MemTotal").value_or(0) * 1024;
  const std::string clock = proc_text(cpuinfo, "cpu MHz");
  double mhz = 0;
  if (std::from_chars(clock.data(), clock.data() + clock.size(), mhz).ec == std::errc() && mhz > 0)
    info.clock_mhz = mhz;
  return info;
}

DeviceInfo describe_device(const Ops& ops) {
  const auto gpu = describe_gpu(ops);
  if (gpu) {
    return {.name = gpu->name,
            .driver = gpu->driver,
            .instruction_set = {},
            .memory_bytes = gpu->memory_bytes,
            .clock_mhz = {}};
  }
  DeviceInfo info = describe_host();
  if (const auto isa = cpu_isa_of(ops)) info.instruction_set = name_of(*isa);
  return info;
}

}  // namespace mererun
