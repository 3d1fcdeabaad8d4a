// docs/options.md names every option, variable and exit status of the program, and none that it lacks. What
// the other documents name in code spans exists: options, variables, tests, files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "cli/commands.h"
#include "cli/environment.h"
#include "engine/model_listing.h"
#include "tests/support/file_text.h"

namespace mererun {

namespace {

using testing::file_text;

std::string source_text(const std::string& path) {
  return file_text(std::filesystem::path(MERERUN_SOURCE_DIR) / path);
}

std::string documentation() { return source_text("docs/options.md"); }

std::set<std::string> names_in(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    names.insert(match->str(1));
  return names;
}

/// The part of the page under the heading "## `command`".
std::string section(const std::string& page, const std::string& command) {
  const std::string heading = "\n## `" + command + "`\n";
  const auto begin = page.find(heading);
  if (begin == std::string::npos) return {};
  const auto end = page.find("\n## ", begin + heading.size());
  return page.substr(begin, end == std::string::npos ? end : end - begin);
}

TEST(OptionsPage, NamesExactlyTheOptionsOfEachCommand) {
  const std::string page = documentation();
  const std::string common = section(page, "mere.run");
  const auto common_names = names_in(common, "`(--[a-z][a-z-]*)");
  for (const auto& command : make_commands()) {
    const std::string own = section(page, command->text().words);
    EXPECT_FALSE(own.empty()) << "no section for " << command->text().words;
    const auto own_names = names_in(own, "`(--[a-z][a-z-]*)");
    std::set<std::string> real;
    for (const OptionSpec& option : command->options().options()) real.insert(option.long_name());
    for (const std::string& name : real) {
      EXPECT_TRUE(own_names.contains(name) || common_names.contains(name))
          << command->text().words << " " << name;
    }
    for (const std::string& name : own_names)
      EXPECT_TRUE(real.contains(name)) << command->text().words << " " << name;
  }
}

TEST(OptionsPage, CommonOptionsExist) {
  std::set<std::string> real = {"--help", "--version", "--name"};
  for (const auto& command : make_commands()) {
    for (const OptionSpec& option : command->options().options()) real.insert(option.long_name());
  }
  for (const std::string& name : names_in(section(documentation(), "mere.run"), "`(--[a-z][a-z-]*)")) {
    EXPECT_TRUE(real.contains(name)) << name;
  }
}

/// Those of the program and those of the tests.
std::set<std::string> variables() {
  std::set<std::string> all = {"MERERUN_GOLDEN_DIR", "MERERUN_TEST_BACKEND"};
  for (const std::string& name : known_variables()) all.insert(name);
  return all;
}

TEST(OptionsPage, NamesExactlyTheVariables) {
  EXPECT_EQ(names_in(documentation(), "(MERERUN_[A-Z0-9_]+)"), variables());
}

namespace fs = std::filesystem;

/// README, CONTRIBUTING and every page of docs.
std::vector<fs::path> documents() {
  const fs::path source = MERERUN_SOURCE_DIR;
  std::vector<fs::path> paths{source / "README.md", source / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  return paths;
}

/// Calls `visit(span, line)` for every `code span` of a document.
template <typename Visit>
void for_each_span(const fs::path& path, const Visit& visit) {
  static const std::regex kSpan("`([^`]+)`");
  std::istringstream lines(file_text(path));
  for (std::string line; std::getline(lines, line);) {
    for (std::sregex_iterator match(line.begin(), line.end(), kSpan), end; match != end; ++match)
      visit(match->str(1), line);
  }
}

bool holds_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

TEST(Documents, OptionsExist) {
  std::set<std::string> real = {"--help", "--version"};
  for (const auto& command : make_commands()) {
    for (const OptionSpec& option : command->options().options()) real.insert(option.long_name());
  }
  for (const fs::path& path : documents()) {
    if (path.filename() == "options.md") continue;  // has tests of its own
    for_each_span(path, [&](const std::string& span, const std::string& line) {
      // A line about another tool speaks of that tool's options.
      if (holds_any(line, {"scripts/", "cmake ", "systemctl ", "bench/", "tools/", "mererun_<folder>_tests"}))
        return;
      for (const std::string& name : names_in(span, "(?:^|[ |(])(--[a-z][a-z-]*)"))
        EXPECT_TRUE(real.contains(name)) << path << ": " << name;
    });
  }
}

TEST(Documents, VariablesExist) {
  const std::set<std::string> real = variables();
  const fs::path source = MERERUN_SOURCE_DIR;
  const std::string build = file_text(source / "CMakeLists.txt") + file_text(source / "CMakePresets.json");
  for (const fs::path& path : documents()) {
    for (const std::string& name :
         names_in(file_text(path), "\\b(MERERUN_[A-Z0-9_]*[A-Z0-9])\\b(?!\\.json)")) {
      EXPECT_TRUE(real.contains(name) || build.find(name) != std::string::npos) << path << ": " << name;
    }
  }
}

/// Every test of the tree as "Suite.Name", and every suite as "Suite".
std::set<std::string> all_tests() {
  static const std::regex kTest(R"(\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\))");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MERERUN_SOURCE_DIR) / "tests")) {
    const auto extension = entry.path().extension();
    if (extension != ".cc" && extension != ".cu") continue;
    const std::string text = file_text(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), kTest), end; match != end; ++match) {
      tests.insert(match->str(1));
      tests.insert(match->str(1) + "." + match->str(2));
    }
  }
  return tests;
}

TEST(Documents, TestsExist) {
  const std::set<std::string> real = all_tests();
  ASSERT_GT(real.size(), 300u);
  static const std::regex kName("[A-Z][A-Za-z0-9]+\\.(\\*|[A-Z][A-Za-z0-9]+)");
  int seen = 0;
  for (const fs::path& path : documents()) {
    for_each_span(path, [&](std::string span, const std::string&) {
      // "Suite.Test" explains the form of a name.
      if (!std::regex_match(span, kName) || span == "Suite.Test") return;
      if (span.ends_with(".*")) span.resize(span.size() - 2);
      ++seen;
      EXPECT_TRUE(real.contains(span)) << path << ": " << span;
    });
  }
  EXPECT_GT(seen, 40) << "exactness.md alone names that many";
}

TEST(Documents, FilesExist) {
  static const std::regex kPath("(src|tests|docs|bench|scripts|tools|models)/[A-Za-z0-9_./-]*[A-Za-z0-9_]/?");
  const fs::path source = MERERUN_SOURCE_DIR;
  for (const fs::path& path : documents()) {
    for_each_span(path, [&](const std::string& span, const std::string&) {
      if (std::regex_match(span, kPath)) {
        EXPECT_TRUE(fs::exists(source / span)) << path << ": " << span;
      }
    });
  }
}

/// What a row of the conformance table may name beside tests in C++: a test in Python, a file, a document.
bool is_proof(const std::string& name, const std::set<std::string>& tests) {
  static const std::regex kTest("[A-Z]\\w+\\.[A-Z]\\w+"), kPythonTest("test_\\w+"), kFile("\\w+/[\\w./-]+");
  if (std::regex_match(name, kTest)) return tests.contains(name);
  if (std::regex_match(name, kPythonTest))
    return source_text("bench/transfer/transfer_test.py").find("def " + name + "(self)") != std::string::npos;
  return std::regex_match(name, kFile) && fs::exists(fs::path(MERERUN_SOURCE_DIR) / name);
}

TEST(Conformance, EveryStatementHasAProofThatExists) {
  constexpr int kStatements = 91;
  static const std::regex kRow(R"(\| (\d+) \| (.+) \| (.+) \|)"), kName("`([^`]+)`|\\b(docs/[\\w.-]+\\.md)");
  const std::set<std::string> tests = all_tests();
  std::istringstream lines(source_text("docs/conformance.md"));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch row;
    if (!std::regex_match(line, row, kRow)) continue;
    EXPECT_EQ(row.str(1), std::to_string(++number));
    const std::string proof = row.str(3);
    int proofs = 0;
    for (std::sregex_iterator match(proof.begin(), proof.end(), kName), end; match != end; ++match) {
      const std::string name = (*match)[1].matched ? match->str(1) : match->str(2);
      EXPECT_TRUE(is_proof(name, tests)) << line << ": " << name;
      ++proofs;
    }
    EXPECT_TRUE(proofs > 0 || proof.starts_with("rows ")) << line;
  }
  EXPECT_EQ(number, kStatements);
}

/// Every number of a text, without the commas of thousands; those in names ("27B", "H200") are no figures.
std::set<std::string> figures_in(const std::string& text) {
  static const std::regex kThousands(",(?=[0-9]{3}(?![0-9]))"), kWord("[A-Za-z0-9_-]+(\\.[0-9]+)?");
  static const std::regex kNumber("[0-9]+(\\.[0-9]+)?");
  const std::string plain = std::regex_replace(text, kThousands, "");
  std::set<std::string> figures;
  for (std::sregex_iterator match(plain.begin(), plain.end(), kWord), end; match != end; ++match) {
    if (std::regex_match(match->str(), kNumber)) figures.insert(match->str());
  }
  return figures;
}

TEST(Readme, ItsResultsAreFiguresOfThePagesThatItNames) {
  static const std::regex kRow(R"(\| [^|]+ \| ([^|]+) \| \[(docs/[a-z-]+\.md)\]\([^)]+\) \|)");
  std::istringstream lines(source_text("README.md"));
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch row;
    if (!std::regex_match(line, row, kRow)) continue;
    ++rows;
    const std::set<std::string> stated = figures_in(source_text(row.str(2)));
    for (const std::string& figure : figures_in(row.str(1)))
      EXPECT_TRUE(stated.contains(figure)) << row.str(2) << " has no " << figure << ": " << line;
  }
  EXPECT_GE(rows, 7);
}

TEST(OperatorPage, NamesExactlyTheMetrics) {
  const auto documented = names_in(source_text("docs/operator.md"), "\n\\| `mererun_(\\w+)`");
  EXPECT_EQ(documented, names_in(source_text("src/server/metrics.cc"), "Family\\{\"(\\w+)\""));
  EXPECT_GT(documented.size(), 20u);
}

TEST(ModelsPage, ListsExactlyTheKnownIds) {
  std::set<std::string> listed =
      names_in(file_text(fs::path(MERERUN_SOURCE_DIR) / "docs/models.md"),
               "\n\\| `([a-z0-9-]+)`(?: \\(bundled\\))? \\| (?:dense|MoE|the same|Flash)");
  std::set<std::string> real;
  for (const ListedModel& model : list_models({}, true).models) real.insert(model.id);
  EXPECT_EQ(listed, real);
}

}  // namespace

}  // namespace mererun
