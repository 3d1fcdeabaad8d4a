#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace mererun {

/// Texts that an installation puts beside the program, made of the same commands and option tables as --help.
/// Completion offers the words of the commands, their options, the values of an option that has few, and
/// files or folders where an option takes one; `--name value` and `--name=value` alike.

/// For share/bash-completion/completions/mere.run.
std::string bash_completion(const std::vector<std::unique_ptr<Command>>& commands);
/// For share/zsh/vendor-completions/_mere.run.
std::string zsh_completion(const std::vector<std::unique_ptr<Command>>& commands);
/// For share/fish/vendor_completions.d/mere.run.fish.
std::string fish_completion(const std::vector<std::unique_ptr<Command>>& commands);
/// For share/man/man1/mere.run.1, in the man macros. `version` is shown in the footer.
std::string man_page(const std::vector<std::unique_ptr<Command>>& commands, const std::string& version);

}  // namespace mererun
