#include "tests/structure/source_tree.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <stdexcept>

namespace mererun::testing {

namespace fs = std::filesystem;

bool SourceFile::is_header() const { return path.ends_with(".h") || path.ends_with(".cuh"); }

std::string SourceFile::folder() const {
  constexpr std::string_view kRoot = "src/";
  if (!path.starts_with(kRoot)) return {};
  const auto end = path.find('/', kRoot.size());
  return end == std::string::npos ? std::string() : path.substr(kRoot.size(), end - kRoot.size());
}

std::vector<SourceFile> read_sources(const fs::path& root, std::string_view folder) {
  std::vector<SourceFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const auto extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh") continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + entry.path().string());
    files.push_back({fs::relative(entry.path(), root).generic_string(),
                     std::string(std::istreambuf_iterator<char>(stream), {})});
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
  std::vector<Include> includes;
  int number = 0;
  for (const std::string& line : lines_of(file.text)) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) includes.push_back({number, match[2], match[1] == "<"});
  }
  return includes;
}

namespace {

// Ends of a literal or comment that starts at `begin`; newlines inside survive the blanking.
std::size_t end_of_quoted(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote || text[i] == '\n') {
      return i + 1;
    }
  }
  return text.size();
}

std::size_t end_of_raw_string(std::string_view text, std::size_t quote) {
  const auto open = text.find('(', quote);
  if (open == std::string_view::npos) return text.size();
  std::string close(1, ')');
  close.append(text.substr(quote + 1, open - quote - 1)).push_back('"');
  const auto end = text.find(close, open);
  return end == std::string_view::npos ? text.size() : end + close.size();
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::string without_comments_and_strings(std::string_view text) {
  std::string result(text);
  const auto blank = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, result.size()); ++i) {
      if (result[i] != '\n') result[i] = ' ';
    }
    return end;
  };
  std::size_t i = 0;
  while (i < text.size()) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) {
      i = blank(i, std::min(text.find('\n', i), text.size()));
    } else if (rest.starts_with("/*")) {
      const auto end = text.find("*/", i + 2);
      i = blank(i, end == std::string_view::npos ? text.size() : end + 2);
    } else if (rest.starts_with("R\"") && (i == 0 || !is_word(text[i - 1]))) {
      i = blank(i, end_of_raw_string(text, i + 1));
    } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_word(text[i - 1])))) {
      // A quote after a word character separates digits (1'000).
      i = blank(i, end_of_quoted(text, i));
    } else {
      ++i;
    }
  }
  return result;
}

}  // namespace mererun::testing
