// The one file that includes CLI11: it takes seconds to compile. CLI11 splits the words into options and
// values; checking values, naming what is wrong and printing help are done on our own tables.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/nearest_name.h"
#include "cli/option_table.h"

namespace mererun {

namespace {

constexpr const char* kHelpNames = "-h,--help";

std::vector<std::string> known_names(const OptionTable& table) {
  std::vector<std::string> names = {"--help"};
  for (const OptionSpec& option : table.options()) {
    const auto more = option.all_names();
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

/// "text chat, api serve": the commands that have an option of this name; empty if none does.
std::string commands_with(const std::string& name) {
  std::string text;
  for (const auto& command : make_commands()) {
    const std::vector<std::string> names = known_names(command->options());
    if (std::ranges::find(names, name) == names.end()) continue;
    text += (text.empty() ? "" : ", ") + command->text().words;
  }
  return text;
}

[[noreturn]] void refuse_extra(const std::string& where, const OptionTable& table, const std::string& extra) {
  if (!extra.starts_with('-') || extra == "-") {
    const std::vector<std::string> names = known_names(table);
    const auto takes = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
    std::string hint;
    if (takes("--prompt")) hint += "--prompt TEXT gives the prompt; ";
    if (takes("--model-root")) hint += "-m DIR names a checkpoint folder; ";
    throw Error(ErrorCode::kInvalidArgument, where + ": expected options, got the word \"" + extra + "\"",
                hint + "quote a value that holds spaces");
  }
  const std::string name = extra.substr(0, extra.find('='));
  if (const std::string others = commands_with(name); !others.empty()) {
    throw Error(ErrorCode::kInvalidArgument, where + ": expected an option of this command, got " + name,
                "it is one of " + others);
  }
  // A name of one letter is near to every other.
  const std::string nearest = name.size() > 2 ? nearest_name(name, known_names(table)) : std::string();
  throw Error(
      ErrorCode::kInvalidArgument, where + ": expected a known option, got " + name,
      nearest.empty() ? "mere.run " + where + " --help lists the options" : "did you mean " + nearest + "?");
}

// CLI11 takes "--name=" for a name alone and the next word for its value: the empty value becomes a word.
std::vector<std::string> with_empty_values(const OptionTable& table, const std::vector<std::string>& words) {
  const auto takes_value = [&](const std::string& name) {
    return std::ranges::any_of(table.options(), [&](const OptionSpec& option) {
      const auto names = option.all_names();
      return !option.is_switch() && std::ranges::find(names, name) != names.end();
    });
  };
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string name = word.substr(0, word.find('='));
    if (word == name + "=" && takes_value(name)) {
      out.insert(out.end(), {name, ""});
      continue;
    }
    out.push_back(word);
    if (word == name && takes_value(name) && i + 1 < words.size()) out.push_back(words[++i]);
  }
  return out;
}

// Values of the options in the order of the table, so that messages do not depend on the parser's own order.
void apply_values(const OptionTable& table, const std::vector<CLI::Option*>& parsed) {
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    const OptionSpec& option = table.options()[i];
    const std::vector<std::string>& values = parsed[i]->results();
    if (values.size() > 1 && !option.is_repeatable) {
      fail_expected(ErrorCode::kInvalidArgument, option.long_name(), "one value",
                    std::to_string(values.size()) + " of them");
    }
    if (option.is_switch()) {
      if (std::ranges::any_of(values, [](const std::string& value) { return value != "true"; })) {
        fail_expected(ErrorCode::kInvalidArgument, option.long_name(), "no value",
                      "\"" + values.front() + "\"");
      }
      if (!values.empty()) option.apply({});
    } else {
      for (const std::string& value : values) option.apply(value);
    }
  }
}

}  // namespace

ParseOutcome parse_arguments(const std::string& where, const OptionTable& table,
                             const std::vector<std::string>& arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  CLI::Option* help = app.add_flag(kHelpNames);
  const CLI::callback_t ignore = [](const CLI::results_t&) { return true; };
  std::vector<CLI::Option*> parsed;
  for (const OptionSpec& option : table.options()) {
    CLI::Option* added = app.add_option(option.text.names, ignore);
    if (option.is_switch()) {
      added->type_size(0)->expected(0, 1)->default_str("true");
    } else {
      added->type_size(1)->expected(1);
    }
    added->take_all();
    parsed.push_back(added);
  }
  try {
    const auto words = with_empty_values(table, arguments);
    // CLI11 takes its arguments from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (help->count() > 0) return {.wants_help = true, .given = {}};
    const std::string message = error.what();
    fail_expected(ErrorCode::kInvalidArgument, where + " " + message.substr(0, message.find(':')), "a value",
                  "none");
  }
  if (help->count() > 0) return {.wants_help = true, .given = {}};
  if (!app.remaining().empty()) refuse_extra(where, table, app.remaining().front());
  apply_values(table, parsed);
  ParseOutcome outcome;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    if (parsed[i]->count() > 0) outcome.given.push_back(table.options()[i].long_name());
  }
  return outcome;
}

}  // namespace mererun
