#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/option_table.h"
#include "cli/options.h"

namespace mererun {

struct Environment;
struct ProgramContext;

/// The commands' bodies, each in the file with its name (text_chat.cc holds run_text_chat). They return the
/// exit status and throw Error. A command whose body is not in this build has no function here; see
/// commands.cc.
int run_model_qualify(const ModelQualifyOptions& options, ProgramContext& context);
int run_benchmark_mtp(const BenchmarkMtpOptions& options, ProgramContext& context);
int run_benchmark_verification(const BenchmarkVerificationOptions& options, ProgramContext& context);

int run_api_serve(const ApiServeOptions& options, ProgramContext& context);
int run_text_chat(const TextChatOptions& options, ProgramContext& context);
int run_model_list(const ModelListOptions& options, ProgramContext& context);
int run_model_inspect(const ModelInspectOptions& options, ProgramContext& context);
int run_model_verify(const ModelVerifyOptions& options, ProgramContext& context);
int run_model_link(const ModelLinkOptions& options, ProgramContext& context);
int run_model_convert(const ModelConvertOptions& options, ProgramContext& context);

/// A command of the program: its words, its help, its options, and what it does.
///
/// Thread-safety: one thread only.
class Command {
 public:
  struct Text {
    std::string words;                  // "model benchmark q36-mtp"
    std::string summary;                // one line of the main help
    std::string details;                // a paragraph of the command's own help; may be empty
    std::vector<std::string> examples;  // command lines without the program's name
  };

  explicit Command(Text text) : text_(std::move(text)) {}
  virtual ~Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  const Text& text() const { return text_; }
  std::vector<std::string> words() const;

  /// The options, bound to this command's own option struct.
  virtual const OptionTable& options() const = 0;
  virtual const OutputFlags& output() const = 0;
  virtual bool is_built() const = 0;

  /// In this order: variables become defaults, then arguments are parsed into `options()`, then the whole is
  /// checked.
  virtual void apply_variables(const Environment& environment) = 0;
  virtual void check() = 0;
  /// Errors: kUnsupported when the command is not built.
  virtual int run(ProgramContext& context) = 0;

  /// The command's --help.
  std::string help() const;

 private:
  Text text_;
};

/// Every command, in the order of the main help.
std::vector<std::unique_ptr<Command>> make_commands();

/// `mere.run --help`, and the help of a group such as "model" (`words` its words so far).
std::string main_help(const std::vector<std::unique_ptr<Command>>& commands);
std::string group_help(const std::vector<std::unique_ptr<Command>>& commands, const std::string& words);

/// The command that `arguments` begins with; `used` is set to the number of its words. Null when help for the
/// group of the first `used` words was asked for (none: the main help).
/// Errors: kInvalidArgument for an unknown or unfinished command, with the nearest word as hint.
Command* find_command(const std::vector<std::unique_ptr<Command>>& commands,
                      const std::vector<std::string>& arguments, std::size_t& used);

}  // namespace mererun
