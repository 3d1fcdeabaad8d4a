#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mererun {

/// Rows of cells as lines of aligned columns, two spaces apart, without trailing spaces.
class TextTable {
 public:
  /// One letter a column: 'l' aligns left, 'r' right.
  explicit TextTable(std::string_view alignment, std::size_t indent = 0)
      : alignment_(alignment), indent_(indent) {}

  /// `cells` has at most as many entries as there are columns.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  std::string alignment_;
  std::size_t indent_;
  std::vector<std::vector<std::string>> rows_;
};

/// "640 B", "12 KiB", "22.1 MiB", "14.30 GiB".
std::string byte_text(std::uint64_t bytes);
/// Digits in groups of three: "262,144".
std::string count_text(std::uint64_t count);

}  // namespace mererun
