// The messages that docs/troubleshooting.md explains are messages of the program.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>

#include "tests/support/file_text.h"

namespace mererun {

namespace {

namespace fs = std::filesystem;
using testing::file_text;

const fs::path kSource = MERERUN_SOURCE_DIR;

/// All sources as one text, string literals that follow each other joined.
std::string sources() {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "src")) {
    if (entry.path().extension() == ".cc") all += file_text(entry.path());
  }
  std::string joined;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (all[at] == '"') {
      const std::size_t next = all.find_first_not_of(" \n", at + 1);
      if (next != std::string::npos && next > at + 1 && all[next] == '"') {
        at = next;
        continue;
      }
    }
    joined += all[at];
  }
  return joined;
}

TEST(TroubleshootingPage, ItsMessagesAreInTheProgram) {
  const std::string program = sources();
  std::istringstream page(file_text(kSource / "docs" / "troubleshooting.md"));
  static const std::regex kSpan("`([^`]+)`");
  int seen = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (std::sregex_iterator match(cell.begin(), cell.end(), kSpan), end; match != end; ++match) {
      ++seen;
      EXPECT_NE(program.find(match->str(1)), std::string::npos) << match->str(1);
    }
  }
  EXPECT_GT(seen, 15);
}

}  // namespace

}  // namespace mererun
