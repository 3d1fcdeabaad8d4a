// docs/options.md names every option, variable and exit status of the program, and none that it lacks.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "cli/commands.h"
#include "cli/environment.h"

namespace mererun {

namespace {

std::string documentation() {
  std::ifstream stream(MERERUN_SOURCE_DIR "/docs/options.md");
  EXPECT_TRUE(stream.good());
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

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

TEST(OptionsPage, NamesExactlyTheVariables) {
  const auto documented = names_in(documentation(), "(MERERUN_[A-Z0-9_]+)");
  std::set<std::string> real = {"MERERUN_GOLDEN_DIR"};
  for (const std::string& name : known_variables()) real.insert(name);
  EXPECT_EQ(documented, real);
}

}  // namespace

}  // namespace mererun
