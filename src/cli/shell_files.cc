#include "cli/shell_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "cli/exit_codes.h"

namespace mererun {
namespace {

using Commands = std::vector<std::unique_ptr<Command>>;

enum class ValueKind { kNone, kText, kChoice, kFile, kFolder };

ValueKind kind_of(const OptionSpec& option) {
  const std::string& value = option.text.value;
  if (value.empty()) return ValueKind::kNone;
  if (!option.choices.empty()) return ValueKind::kChoice;
  if (value.find("DIR") != std::string::npos) return ValueKind::kFolder;
  if (value.find("FILE") != std::string::npos || value.find("PATH") != std::string::npos)
    return ValueKind::kFile;
  return ValueKind::kText;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// What may follow the first words of a command: for every proper prefix of some command's words, the next
/// words. {"", "model list"} -> {{"", "api model text"}, {"model", "convert list ..."}}.
std::vector<std::pair<std::string, std::string>> next_words(const Commands& commands) {
  std::vector<std::pair<std::string, std::string>> table;
  std::set<std::string> prefixes{""};
  for (const auto& command : commands) {
    std::string prefix;
    for (const std::string& word : command->words()) {
      prefix += (prefix.empty() ? "" : " ") + word;
      if (prefix != command->text().words) prefixes.insert(prefix);
    }
  }
  for (const std::string& prefix : prefixes) {
    std::set<std::string> next;
    for (const auto& command : commands) {
      const std::string start = prefix.empty() ? "" : prefix + " ";
      const std::string& words = command->text().words;
      if (words.starts_with(start))
        next.insert(words.substr(start.size(), words.find(' ', start.size()) - start.size()));
    }
    std::string joined;
    for (const std::string& word : next) joined += (joined.empty() ? "" : " ") + word;
    table.emplace_back(prefix, joined);
  }
  return table;
}

/// What may follow the words of `prefix` besides further words, each after a space.
std::string_view general_options(const std::string& prefix) {
  return prefix.empty() ? " --help --version" : " --help";
}

std::string option_names(const Command& command) {
  std::string names;
  for (const OptionSpec& option : command.options().options()) {
    for (const std::string& name : option.all_names()) names += name + " ";
  }
  return names + "-h --help";
}

/// Names of options with a value of one kind, as alternatives of a shell pattern; empty if there are none.
std::string pattern_of(const Command& command, ValueKind kind) {
  std::string pattern;
  for (const OptionSpec& option : command.options().options()) {
    if (kind_of(option) != kind) continue;
    for (const std::string& name : option.all_names()) pattern += (pattern.empty() ? "" : "|") + name;
  }
  return pattern;
}

/// A sentence for a shell: quotes and brackets would end its string.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "\u2019";
    } else if (c == ':') {
      result += ';';
    } else if (std::string_view("[]\\`$").find(c) == std::string_view::npos) {
      result += c;
    }
  }
  return result;
}

/// Text of the man page: hyphens stay hyphens, and no line starts with a control character.
std::string roff(const std::string& text) {
  std::string result = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  if (result.starts_with(".") || result.starts_with("'")) result.insert(0, "\\&");
  return result;
}

std::string option_paragraph(const OptionSpec& option) {
  std::string names;
  for (const std::string& name : option.all_names())
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  if (!option.is_switch()) names += fmt::format(" \\fI{}\\fR", roff(option.text.value));
  std::string help = option.text.help;
  if (!option.text.default_text.empty()) help += " (default: " + option.text.default_text + ")";
  return fmt::format(".TP\n{}\n{}\n", names, roff(help));
}

}  // namespace

std::string bash_completion(const Commands& commands) {
  std::string text = R"(# bash completion of mere.run; made from the program's option tables.
_mere_run() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words="" i as_files=:
  [[ -n ${COMP_TYPE-} ]] && as_files="compopt -o filenames"
  # "--name=value" comes as three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] && break
    words+="${words:+ }${COMP_WORDS[i]}"
  done
  COMPREPLY=()
  case $words in
)";
  for (const auto& [prefix, next] : next_words(commands)) {
    text += fmt::format("    \"{}\") COMPREPLY=($(compgen -W \"{}{}\" -- \"$cur\")) ;;\n", prefix, next,
                        general_options(prefix));
  }
  for (const auto& command : commands) {
    text += fmt::format("    \"{}\"*)\n      case $prev in\n", command->text().words);
    const auto alternative = [&](ValueKind kind, const char* action) {
      const std::string pattern = pattern_of(*command, kind);
      if (!pattern.empty()) text += fmt::format("        {}) {} ;;\n", pattern, action);
    };
    // Names of files may hold spaces, and get a slash where they are folders.
    alternative(ValueKind::kFolder, "mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); $as_files");
    alternative(ValueKind::kFile, "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); $as_files");
    alternative(ValueKind::kText, ":");
    for (const OptionSpec& option : command->options().options()) {
      if (kind_of(option) == ValueKind::kChoice)
        text += fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n",
                            fmt::join(option.all_names(), "|"), fmt::join(option.choices, " "));
    }
    text += fmt::format("        *) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n      esac ;;\n",
                        option_names(*command));
  }
  return text + "  esac\n}\ncomplete -F _mere_run mere.run\n";
}

std::string zsh_completion(const Commands& commands) {
  std::string text = R"(#compdef mere.run
# zsh completion of mere.run; made from the program's option tables.
_mere_run() {
  local words_so_far="" i
  for ((i = 2; i < CURRENT; i++)); do
    [[ ${words[i]} == -* ]] && break
    words_so_far+="${words_so_far:+ }${words[i]}"
  done
  case $words_so_far in
)";
  for (const auto& [prefix, next] : next_words(commands))
    text += fmt::format("    \"{}\") compadd -- {}{} ;;\n", prefix, next, general_options(prefix));
  for (const auto& command : commands) {
    // _arguments takes every word behind the first for an argument, and without one to expect offers nothing.
    text +=
        fmt::format("    \"{0}\"*)\n      shift {1} words\n      (( CURRENT -= {1} ))\n      _arguments \\\n",
                    command->text().words, command->words().size());
    for (const OptionSpec& option : command->options().options()) {
      const ValueKind kind = kind_of(option);
      const std::string action = kind == ValueKind::kFolder ? "_files -/"
                                 : kind == ValueKind::kFile ? "_files"
                                 : kind == ValueKind::kChoice
                                     ? fmt::format("({})", fmt::join(option.choices, " "))
                                     : " ";
      const bool has_value = kind != ValueKind::kNone;
      const std::string once = fmt::format("({})", fmt::join(option.all_names(), " "));
      for (const std::string& name : option.all_names()) {
        text += fmt::format("        '{}{}{}[{}]{}' \\\n", option.is_repeatable && has_value ? "*" : once,
                            name, has_value && name.starts_with("--") ? "=" : "", plain(option.text.help),
                            has_value ? fmt::format(":{}:{}", plain(option.text.value), action) : "");
      }
    }
    text += "        '(- *)--help[this text]' ;;\n";
  }
  return text + "  esac\n}\n_mere_run \"$@\"\n";
}

std::string fish_completion(const Commands& commands) {
  std::string text = R"(# fish completion of mere.run; made from the program's option tables.
function __mere_run_words
    set -l words
    for token in (commandline -opc)[2..-1]
        string match -q -- '-*' $token; and break
        set -a words $token
    end
    echo "$words" # a line even without words: what it is compared with takes its place otherwise
end
complete -c mere.run -f
complete -c mere.run -n "test (__mere_run_words) = ''" -l version -d 'version and backends'
)";
  for (const auto& [prefix, next] : next_words(commands))
    text += fmt::format("complete -c mere.run -n \"test (__mere_run_words) = '{}'\" -a '{}'\n", prefix, next);
  for (const auto& command : commands) {
    const std::string condition =
        fmt::format("-n \"string match -q -- '{}*' (__mere_run_words)\"", command->text().words);
    for (const OptionSpec& option : command->options().options()) {
      std::string names;
      for (const std::string& name : option.all_names())
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      const ValueKind kind = kind_of(option);
      const std::string value = kind == ValueKind::kNone   ? ""
                                : kind == ValueKind::kText ? " -x"
                                : kind == ValueKind::kChoice
                                    ? fmt::format(" -x -a '{}'", fmt::join(option.choices, " "))
                                : kind == ValueKind::kFolder ? " -x -a '(__fish_complete_directories)'"
                                                             : " -r -F";
      text += fmt::format("complete -c mere.run {}{}{} -d '{}'\n", condition, names, value,
                          plain(option.text.help));
    }
  }
  return text + "complete -c mere.run -s h -l help -d 'help'\n";
}

std::string man_page(const Commands& commands, const std::string& version) {
  std::string text = fmt::format(
      ".TH MERE.RUN 1 \"\" \"mere.run {}\" \"User Commands\"\n"
      ".SH NAME\nmere.run \\- runs Qwen3.5\\-family language models from their checkpoint folders\n"
      ".SH SYNOPSIS\n.B mere.run\n.I COMMAND\n.RI [ options ]\n"
      ".SH DESCRIPTION\n"
      "Every option may be written \\fB\\-\\-name\\fR \\fIvalue\\fR or \\fB\\-\\-name=\\fR\\fIvalue\\fR. "
      "Results go to "
      "standard output, everything else to standard error. The program opens no outbound connection.\n"
      ".SH COMMANDS\n",
      roff(version));
  for (const auto& command : commands) {
    text +=
        fmt::format(".SS \"mere.run {}\"\n{}.\n", roff(command->text().words), roff(command->text().summary));
    if (!command->text().details.empty()) text += fmt::format("{}\n", roff(command->text().details));
    for (const OptionSpec& option : command->options().options()) text += option_paragraph(option);
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : exit_status_meanings())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", status, roff(meaning));
  return text +
         ".SH ENVIRONMENT\nVariables named \\fBMERERUN_\\fR... stand for options; docs/options.md lists "
         "them. "
         "\\fBMERERUN_MODELS\\fR names folders of models, separated by colons.\n"
         ".SH FILES\n.TP\n~/.local/share/mere.run/models\nmodels of the user, by id\n";
}

}  // namespace mererun
