#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mererun {

/// A small file of /proc as text; empty if it cannot be read (a process may be gone by then).
std::string read_proc(const std::string& path);

/// The first number behind "<name>:" at the start of a line, as in /proc/meminfo and /proc/self/status.
std::optional<std::uint64_t> proc_number(std::string_view text, std::string_view name);

/// The text behind "<name>" and the colon of its line, trimmed, as in /proc/cpuinfo; empty if there is none.
std::string proc_text(std::string_view text, std::string_view name);

}  // namespace mererun
