#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mererun::testing {

/// One file of the checkout, by its path relative to the root ("src/base/error.h").
struct SourceFile {
  std::string path;
  std::string text;

  bool is_header() const;
  /// The folder under src/ ("kernels" for src/kernels/cpu/linear.cc), empty for files elsewhere.
  std::string folder() const;
};

/// An `#include` line. System includes (<...>) keep `is_system`.
struct Include {
  int line;  // from 1
  std::string target;
  bool is_system;
};

/// Every .h, .cc, .cu and .cuh file below `root / folder`, in path order.
std::vector<SourceFile> read_sources(const std::filesystem::path& root, std::string_view folder);

std::vector<Include> includes_of(const SourceFile& file);

/// The text with comments and the contents of string and character literals blanked; line numbers stay.
std::string without_comments_and_strings(std::string_view text);

/// The text's lines, without their ends.
std::vector<std::string> lines_of(std::string_view text);

}  // namespace mererun::testing
