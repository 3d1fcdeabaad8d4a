#include "engine/proc_fields.h"

#include <charconv>
#include <fstream>
#include <iterator>

namespace mererun {

std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string proc_text(std::string_view text, std::string_view name) {
  constexpr std::string_view kBlank = " \t";
  while (!text.empty()) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    const auto colon = line.find_first_not_of(kBlank);
    if (colon == std::string_view::npos || line[colon] != ':') continue;
    const auto begin = line.find_first_not_of(kBlank, colon + 1);
    if (begin == std::string_view::npos) return {};
    const auto last = line.find_last_not_of(kBlank);
    return std::string(line.substr(begin, last + 1 - begin));
  }
  return {};
}

std::optional<std::uint64_t> proc_number(std::string_view text, std::string_view name) {
  const std::string value = proc_text(text, name);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end == value.data()) return std::nullopt;
  return number;
}

}  // namespace mererun
