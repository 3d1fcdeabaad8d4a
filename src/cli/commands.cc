#include "cli/commands.h"

#include <utility>

#include "base/error.h"
#include "cli/program_context.h"

namespace mererun {

namespace {

template <typename Options>
using Body = int (*)(const Options&, ProgramContext&);

template <typename Options>
class TypedCommand final : public Command {
 public:
  TypedCommand(Text text, Body<Options> body) : Command(std::move(text)), body_(body) {
    declare(table_, options_);
  }

  const OptionTable& options() const override { return table_; }
  const OutputFlags& output() const override { return options_.output; }
  bool is_built() const override { return body_ != nullptr; }
  void apply_variables(const Environment& environment) override { apply_environment(environment, options_); }
  void check() override { validate(options_); }

  int run(ProgramContext& context) override {
    if (body_ == nullptr) {
      throw Error(
          ErrorCode::kUnsupported,
          text().words + ": expected a command that this build has, got one that it lacks (unsupported)",
          "mere.run --help marks the commands that this build lacks");
    }
    return body_(options_, context);
  }

 private:
  Options options_;
  OptionTable table_;
  Body<Options> body_;
};

template <typename Options>
std::unique_ptr<Command> command(Command::Text text, Body<Options> body) {
  return std::make_unique<TypedCommand<Options>>(std::move(text), body);
}

using Commands = std::vector<std::unique_ptr<Command>>;

void add_text_commands(Commands& commands) {
  commands.push_back(command<TextChatOptions>(
      {.words = "text chat",
       .summary = "answer a prompt, or hold a conversation",
       .details = "The reply goes to stdout, everything else to stderr. Ctrl-C ends "
                  "the reply at the end of the round and "
                  "prints what exists; a second Ctrl-C ends the program.",
       .examples = {"text chat --prompt \"Write a Python function that checks whether a number is prime.\"",
                    "text chat --interactive --model demo-moe-4bit",
                    "text chat --temperature 0 --stats < question.txt"}},
      run_text_chat));
}

void add_model_commands(Commands& commands) {
  commands.push_back(command<ModelListOptions>({.words = "model list",
                                                .summary = "the installed models",
                                                .details = {},
                                                .examples = {"model list --all", "model list --json"}},
                                               run_model_list));
  commands.push_back(command<ModelInspectOptions>(
      {.words = "model inspect",
       .summary = "what a checkpoint holds, needs and lacks",
       .details =
           "Prints geometry, precision by tensor group, draft head, norm conventions and the memory needed. "
           "Problems of the checkpoint give exit status 65.",
       .examples = {"model inspect --model demo-moe-4bit",
                    "model inspect -m path/to/checkpoint --verify --json"}},
      run_model_inspect));
  commands.push_back(command<ModelVerifyOptions>(
      {.words = "model verify",
       .summary = "check every byte of a checkpoint",
       .details =
           "Compares files with the checksums of mererun.json, where there is one, binds every tensor as "
           "loading does, and scans all values for NaN and infinity. Problems give exit status 65.",
       .examples = {"model verify --model demo-moe-4bit", "model verify -m path/to/checkpoint --json"}},
      run_model_verify));
  commands.push_back(command<ModelLinkOptions>(
      {.words = "model link",
       .summary = "make a checkpoint folder known by its id",
       .details = "Puts a symbolic link into the first folder of models, so that --model ID finds the "
                  "checkpoint. Nothing is copied.",
       .examples = {"model link -m path/to/checkpoint --model vision-chat-q38-27b-4bit"}},
      run_model_link));
  commands.push_back(command<ModelQualifyOptions>(
      {.words = "model qualify",
       .summary = "prove drafting and the prefix cache exact on a model",
       .details =
           "Runs cold, replayed, serial and follow-up generations and compares every token. A step that does "
           "not hold gives exit status 1.",
       .examples = {"model qualify --model demo-moe-4bit --json"}},
      run_model_qualify));
}

void add_benchmark_commands(Commands& commands) {
  commands.push_back(command<BenchmarkMtpOptions>(
      {.words = "model benchmark q36-mtp",
       .summary = "generation speed: serial, adaptive and forced drafting",
       .details =
           "Each variant generates the same tokens with its own generator; outputs that differ give exit "
           "status 1. The prefix cache and batching are off.",
       .examples = {"model benchmark q36-mtp --decode-tokens 256",
                    "model benchmark q36-mtp --model demo-moe-4bit --prompt-repeat-values 50,150 --json"}},
      run_benchmark_mtp));
  commands.push_back(command<BenchmarkVerificationOptions>(
      {.words = "model benchmark q38-verification",
       .summary = "verification rate of the target by width",
       .details =
           "Feeds the model's own serial output in slices of each width. Drafting and rollback are excluded: "
           "this is capacity, not generation speed. A row that differs gives exit status 1.",
       .examples = {"model benchmark q38-verification --widths 1,4,8 --tokens 256"}},
      run_benchmark_verification));
}

void add_api_commands(Commands& commands) {
  commands.push_back(command<ApiServeOptions>(
      {.words = "api serve",
       .summary = "serve a model over HTTP",
       .details = "Speaks the chat-completions and messages forms. SIGTERM finishes the active requests, for "
                  "at most "
                  "30 seconds, and exits with status 0.",
       .examples = {"api serve --port 8080", "api serve --model demo-moe-4bit --preflight"}},
      run_api_serve));
}

void add_convert_command(Commands& commands) {
  commands.push_back(command<ModelConvertOptions>(
      {.words = "model convert",
       .summary = "quantise a checkpoint",
       .details =
           "Reads a BF16, F16 or F32 checkpoint, Hugging Face or MLX layout, and writes MLX affine weights, "
           "read back and compared. Works in OUTPUT.converting, which is renamed when it is complete; a "
           "run that was stopped is finished by the same command.",
       .examples = {"model convert --source path/to/bf16 --output path/to/q4 --bits 4",
                    "model convert --source path/to/bf16 --output path/to/mixed --profile mixed-3-6"}},
      run_model_convert));
}

}  // namespace

// A command that this build lacks has nullptr for its body: its options are parsed and checked all the same.
std::vector<std::unique_ptr<Command>> make_commands() {
  Commands commands;
  add_text_commands(commands);
  add_model_commands(commands);
  add_benchmark_commands(commands);
  add_api_commands(commands);
  add_convert_command(commands);
  return commands;
}

}  // namespace mererun
