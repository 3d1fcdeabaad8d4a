// Completion and manual follow the option tables.
#include "cli/shell_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace mererun::testing {

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

struct ShellResult {
  int status;
  std::string output;
};

ShellResult shell(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, got);
  return {::pclose(pipe), output};
}

/// What bash offers after `line`, whose last word is being completed.
std::vector<std::string> completions(const std::vector<std::string>& line) {
  const TempFolder folder;
  std::string words;
  for (const std::string& word : line) words += "'" + word + "' ";
  write_file(folder / "run.sh", bash_completion(make_commands()) + "COMP_WORDS=(" + words +
                                    ")\nCOMP_CWORD=" + std::to_string(line.size() - 1) +
                                    "\n_mere_run\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
  const ShellResult result = shell("bash " + (folder / "run.sh").string());
  EXPECT_EQ(result.status, 0) << result.output;
  std::vector<std::string> offered;
  std::istringstream lines(result.output);
  for (std::string each; std::getline(lines, each);) offered.push_back(each);
  return offered;
}

TEST(BashCompletion, OffersCommandsWordByWord) {
  EXPECT_THAT(completions({"mere.run", ""}), IsSupersetOf({"text", "model", "api", "--help", "--version"}));
  EXPECT_THAT(completions({"mere.run", "model", ""}),
              IsSupersetOf({"list", "inspect", "convert", "benchmark"}));
  EXPECT_THAT(completions({"mere.run", "model", "con"}), ::testing::ElementsAre("convert"));
  EXPECT_THAT(completions({"mere.run", "model", "benchmark", ""}),
              IsSupersetOf({"q36-mtp", "q38-verification"}));
}

TEST(BashCompletion, OffersEveryOptionOfEveryCommand) {
  for (const auto& command : make_commands()) {
    std::vector<std::string> line{"mere.run"};
    for (const std::string& word : command->words()) line.push_back(word);
    line.push_back("--");
    const std::vector<std::string> offered = completions(line);
    for (const OptionSpec& option : command->options().options())
      EXPECT_THAT(offered, Contains(option.long_name())) << command->text().words;
  }
}

TEST(BashCompletion, OffersFoldersAndFilesWhereAnOptionTakesThem) {
  const TempFolder folder;
  write_file(folder / "inside/file.txt", "x");
  const std::string start = folder.path().string() + "/in";
  EXPECT_THAT(completions({"mere.run", "model", "inspect", "-m", start}),
              ::testing::ElementsAre(folder.path().string() + "/inside"));
  write_file(folder / "in two words/file.txt", "x");
  EXPECT_THAT(completions({"mere.run", "model", "inspect", "-m", start + " "}),
              ::testing::ElementsAre(start + " two words"));
}

TEST(BashCompletion, OffersTheValuesOfAnOptionThatHasFew) {
  EXPECT_THAT(completions({"mere.run", "model", "list", "--log-level", ""}),
              ::testing::ElementsAre("error", "warn", "info", "debug"));
  EXPECT_THAT(completions({"mere.run", "text", "chat", "--speculation", "o"}),
              ::testing::ElementsAre("on", "off"));
  EXPECT_THAT(completions({"mere.run", "text", "chat", "--seed", ""}), ::testing::ElementsAre(""));
  // "--speculation=o" is three words to bash.
  EXPECT_THAT(completions({"mere.run", "text", "chat", "--speculation", "=", "o"}),
              ::testing::ElementsAre("on", "off"));
  EXPECT_THAT(completions({"mere.run", "text", "chat", "--speculation", "="}),
              ::testing::ElementsAre("auto", "on", "off"));
}

/// The folder of a completion, with a folder "within" and a file "with.txt" beside it to complete.
struct CompletionFolder {
  TempFolder folder;

  CompletionFolder(const std::string& name, const std::string& text) {
    write_file(folder / name, text);
    write_file(folder / "within/file.txt", "x");
    write_file(folder / "with.txt", "x");
  }
  ShellResult run(const std::string& command) const {
    return shell("cd '" + folder.path().string() + "' && " + command);
  }
};

/// What fish offers for a line, one candidate a line, without descriptions.
std::string fish_offers(const std::string& line) {
  const CompletionFolder fish("mere.run.fish", fish_completion(make_commands()));
  return fish.run("fish --no-config -c \"source mere.run.fish; complete -C '" + line + "'\" | cut -f 1")
      .output;
}

// These two run where the shell is; scripts/prove_package.sh installs both and asks each the same way.

TEST(FishCompletion, OffersCommandsOptionsValuesAndPaths) {
  if (shell("fish --version").status != 0) GTEST_SKIP() << "fish is not installed";
  EXPECT_EQ(fish_offers("mere.run "), "api\nmodel\ntext\n");
  EXPECT_EQ(fish_offers("mere.run --"), "--help\n--version\n");
  EXPECT_EQ(fish_offers("mere.run text ch"), "chat\n");
  EXPECT_EQ(fish_offers("mere.run model benchmark "), "q36-mtp\nq38-verification\n");
  EXPECT_EQ(fish_offers("mere.run text chat --specul"), "--speculation\n");
  EXPECT_EQ(fish_offers("mere.run text chat --json --speculation o"), "off\non\n");
  EXPECT_EQ(fish_offers("mere.run text chat --speculation=o"), "--speculation=off\n--speculation=on\n");
  EXPECT_EQ(fish_offers("mere.run text chat -m wi"), "within/\n");
  EXPECT_EQ(fish_offers("mere.run text chat --prompt-file wi"), "with.txt\nwithin/\n");
  EXPECT_EQ(fish_offers("mere.run text chat --seed "), "");
}

/// The line that zsh, in a terminal of its own, makes of a line and Tab.
std::string zsh_completes(const std::string& line) {
  const CompletionFolder zsh("_mere.run", zsh_completion(make_commands()));
  write_file(zsh.folder / "complete.zsh", R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($PWD \$fpath); autoload -Uz compinit && compinit -u -D"
zpty -w shell "show() { print -r -- \"<\$BUFFER>\" }; zle -N show; bindkey '^G' show; PS1='ready''> '"
zpty -r shell seen '*ready> '
zpty -w -n shell $1$'\t\a'
zpty -r shell seen '*<*>*'
print -r -- "${${seen##*<}%%>*}"
)");
  return zsh.run("timeout 60 zsh -f complete.zsh '" + line + "'").output;
}

TEST(ZshCompletion, CompletesCommandsOptionsValuesAndPaths) {
  if (shell("zsh --version").status != 0) GTEST_SKIP() << "zsh is not installed";
  EXPECT_EQ(zsh_completes("mere.run --ver"), "mere.run --version \n");
  EXPECT_EQ(zsh_completes("mere.run text ch"), "mere.run text chat \n");
  EXPECT_EQ(zsh_completes("mere.run model benchmark q36"), "mere.run model benchmark q36-mtp \n");
  EXPECT_EQ(zsh_completes("mere.run text chat --specul"), "mere.run text chat --speculation=\n");
  EXPECT_EQ(zsh_completes("mere.run text chat --json --speculation of"),
            "mere.run text chat --json --speculation off \n");
  EXPECT_EQ(zsh_completes("mere.run text chat --speculation=of"), "mere.run text chat --speculation=off \n");
  EXPECT_EQ(zsh_completes("mere.run text chat -m w"), "mere.run text chat -m within/\n");
  EXPECT_EQ(zsh_completes("mere.run text chat --prompt-file with."),
            "mere.run text chat --prompt-file with.txt \n");
  EXPECT_EQ(zsh_completes("mere.run text chat --no-str"), "mere.run text chat --no-stream \n");
}

TEST(OtherCompletions, NameEveryOption) {
  const auto commands = make_commands();
  const std::string zsh = zsh_completion(commands);
  const std::string fish = fish_completion(commands);
  for (const auto& command : commands) {
    for (const OptionSpec& option : command->options().options()) {
      const std::string zsh_name = option.long_name() + (option.is_switch() ? "[" : "=[");
      EXPECT_NE(zsh.find(zsh_name), std::string::npos) << option.long_name();
      EXPECT_NE(fish.find(" -l " + option.long_name().substr(2)), std::string::npos) << option.long_name();
      if (option.choices.empty()) continue;
      const std::string values = fmt::format("{}", fmt::join(option.choices, " "));
      EXPECT_NE(zsh.find(":(" + values + ")"), std::string::npos) << option.long_name();
      EXPECT_NE(fish.find(" -x -a '" + values + "'"), std::string::npos) << option.long_name();
    }
  }
}

TEST(ManPage, HasEveryCommandAndOptionAndIsSoundRoff) {
  const auto commands = make_commands();
  const std::string page = man_page(commands, "1.2.3");
  const TempFolder folder;
  write_file(folder / "mere.run.1", page);
  const ShellResult shown = shell("groff -man -Tascii -ww " + (folder / "mere.run.1").string() + " | col -b");
  // Where groff is not installed the shell says so; the page's text is checked all the same.
  const bool is_rendered = shown.output.find("not found") == std::string::npos;
  for (const auto& command : commands) {
    if (is_rendered) {
      EXPECT_THAT(shown.output, HasSubstr("mere.run " + command->text().words));
    }
    for (const OptionSpec& option : command->options().options()) {
      std::string name = option.long_name();
      for (std::size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2) name.insert(at, "\\");
      EXPECT_NE(page.find("\\fB" + name + "\\fR"), std::string::npos) << name;
    }
  }
  if (is_rendered) {
    EXPECT_EQ(shown.output.find("warning"), std::string::npos) << shown.output.substr(0, 500);
  }
}

}  // namespace

}  // namespace mererun::testing
