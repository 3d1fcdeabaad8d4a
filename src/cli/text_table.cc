#include "cli/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace mererun {

std::string TextTable::text() const {
  std::vector<std::size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent_, ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      const std::string space(widths[c] - row[c].size(), ' ');
      line += alignment_[c] == 'r' ? space + row[c] : row[c] + space;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string byte_text(std::uint64_t bytes) {
  constexpr double kStep = 1024;
  const auto value = static_cast<double>(bytes);
  if (value < kStep) return fmt::format("{} B", bytes);
  if (value < kStep * kStep) return fmt::format("{:.0f} KiB", value / kStep);
  if (value < kStep * kStep * kStep) return fmt::format("{:.1f} MiB", value / (kStep * kStep));
  return fmt::format("{:.2f} GiB", value / (kStep * kStep * kStep));
}

std::string count_text(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace mererun
