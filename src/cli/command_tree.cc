#include <algorithm>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/help_text.h"
#include "cli/nearest_name.h"

namespace mererun {

namespace {

std::string first_words(const std::vector<std::string>& words, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : " ") + words[i];
  return text;
}

std::string summary_of(const Command& command) {
  return command.text().summary + (command.is_built() ? "" : " (not in this build)");
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

// The distinct words at `depth` of those commands that begin with the words given so far.
std::vector<std::string> next_words(const std::vector<std::vector<std::string>>& commands,
                                    std::size_t depth) {
  std::vector<std::string> words;
  for (const auto& command : commands) {
    if (std::ranges::find(words, command[depth]) == words.end()) words.push_back(command[depth]);
  }
  return words;
}

// The words of the first command that `word` alone could mean: "text chat" for "chat".
std::string command_ending_in(const std::string& word,
                              const std::vector<std::unique_ptr<Command>>& commands) {
  const auto found = std::ranges::find_if(
      commands, [&](const auto& command) { return command->text().words.ends_with(" " + word); });
  return found == commands.end() ? std::string() : (*found)->text().words;
}

[[noreturn]] void refuse_word(const std::string& before, const std::string& got,
                              const std::vector<std::string>& known,
                              const std::vector<std::unique_ptr<Command>>& commands) {
  std::string expected;
  for (const std::string& word : known) expected += (expected.empty() ? "" : ", ") + word;
  const std::string where = before.empty() ? "command" : before;
  std::vector<std::string> near = known;
  if (before.empty()) near.insert(near.end(), {"--help", "--version"});
  std::string nearest = nearest_name(got, near);
  if (nearest.empty() && before.empty() && !got.empty()) nearest = command_ending_in(got, commands);
  throw Error(ErrorCode::kInvalidArgument,
              where + ": expected " + (known.size() > 1 ? "one of " : "") + expected + ", got " +
                  (got.empty() ? "nothing" : "\"" + got + "\""),
              nearest.empty() ? "mere.run --help lists the commands" : "did you mean " + nearest + "?");
}

}  // namespace

std::vector<std::string> Command::words() const {
  std::vector<std::string> words;
  std::string_view rest = text_.words;
  while (!rest.empty()) {
    const auto end = rest.find(' ');
    words.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return words;
}

std::string Command::help() const {
  std::string text = "mere.run " + text_.words + ": " + text_.summary + "\n\n";
  if (!text_.details.empty()) text += wrapped(text_.details, 0, 0, kHelpColumns) + "\n\n";
  text += "usage: mere.run " + text_.words + " [options]\n";
  for (const std::string& example : text_.examples) text += "   e.g. mere.run " + example + "\n";
  text += help_options(options());
  text += help_rows({{"-h, --help", "this text"}}, 34);
  return text;
}

std::string group_help(const std::vector<std::unique_ptr<Command>>& commands, const std::string& words) {
  std::vector<HelpRow> rows;
  for (const auto& command : commands) {
    if (command->text().words.starts_with(words + " "))
      rows.push_back({command->text().words, summary_of(*command)});
  }
  return "usage: mere.run " + words + " COMMAND [options]\n\nCommands\n" + help_rows(rows, 38);
}

std::string main_help(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<HelpRow> rows;
  for (const auto& command : commands) rows.push_back({command->text().words, summary_of(*command)});
  std::string text =
      "mere.run: runs Qwen3.5-family language models from their checkpoint folders\n\n"
      "usage: mere.run COMMAND [options]\n"
      "   e.g. mere.run text chat --prompt \"Write a Python function that checks whether a number is "
      "prime.\"\n\n"
      "Commands\n";
  text += help_rows(rows, 38);
  text += "\nOptions\n";
  text += help_rows({{"-h, --help", "this text; after a command, the command's options"},
                     {"--version", "version, commit, backends and numeric-contract version"}},
                    38);
  text +=
      "\nEvery option may be written --name value or --name=value. Results go to stdout, everything else to\n"
      "stderr. The program opens no outbound connection. MERERUN_* variables: see docs/options.md.\n"
      "\nExit statuses\n";
  std::vector<HelpRow> statuses;
  for (const auto& [status, meaning] : exit_status_meanings()) statuses.push_back({status, meaning});
  text += help_rows(statuses, 14);
  return text;
}

Command* find_command(const std::vector<std::unique_ptr<Command>>& commands,
                      const std::vector<std::string>& arguments, std::size_t& used) {
  std::vector<std::vector<std::string>> candidates;
  for (const auto& command : commands) candidates.push_back(command->words());
  for (used = 0;; ++used) {
    const bool has_word = used < arguments.size() && !is_help(arguments[used]);
    if (used < arguments.size() && is_help(arguments[used])) return nullptr;
    const std::string word = has_word ? arguments[used] : std::string();
    const std::vector<std::string> known = next_words(candidates, used);
    std::erase_if(candidates, [&](const auto& words) { return words[used] != word; });
    if (candidates.empty()) refuse_word(first_words(arguments, used), word, known, commands);
    // No command's words begin another command.
    if (candidates.size() == 1 && candidates.front().size() == used + 1) {
      ++used;
      const auto found = std::ranges::find_if(
          commands, [&](const auto& command) { return command->words() == candidates.front(); });
      return found->get();
    }
  }
}

}  // namespace mererun
