#include "cli/program.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <new>
#include <utility>

#include "base/build_info.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/program_context.h"

namespace mererun {

namespace {

void set_logging(const OutputFlags& output) {
  set_log_level(output.quiet ? LogLevel::kError : parse_log_level(output.log_level));
}

int dispatch(const std::vector<std::string>& arguments, Environment& environment,
             const std::string& program_path) {
  if (!arguments.empty() && arguments.front() == "--version") {
    if (arguments.size() > 1)
      fail_expected(ErrorCode::kInvalidArgument, "--version", "nothing behind it",
                    "\"" + arguments[1] + "\"");
    write_stdout(version_text());
    return kExitDone;
  }
  const auto commands = make_commands();
  std::size_t used = 0;
  Command* command = find_command(commands, arguments, used);
  if (command == nullptr) {
    std::string words;
    for (std::size_t i = 0; i < used; ++i) words += (i == 0 ? "" : " ") + arguments[i];
    write_stdout(words.empty() ? main_help(commands) : group_help(commands, words));
    return kExitDone;
  }

  command->apply_variables(environment);
  const std::vector<std::string> rest(arguments.begin() + static_cast<std::ptrdiff_t>(used), arguments.end());
  const ParseOutcome outcome = parse_arguments(command->text().words, command->options(), rest);
  if (outcome.wants_help) {
    write_stdout(command->help());
    return kExitDone;
  }
  mark_beaten(outcome.given, environment);
  command->check();
  set_logging(command->output());
  for (const std::string& warning : environment.warnings())
    log(LogLevel::kWarn, "environment", "{}", warning);

  Interrupts interrupts;
  ProgramContext context{environment, interrupts, Terminal::of_process(), program_path};
  return command->run(context);
}

int fail(const std::string& message, int status) {
  std::fputs(("mere.run: error: " + message + "\n").c_str(), stderr);
  return status;
}

}  // namespace

Terminal Terminal::of_process() {
  Terminal terminal{isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1, 80};
  winsize size = {};
  if (terminal.is_stderr && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.stderr_columns = size.ws_col;
  }
  return terminal;
}

std::string error_text(const Error& error) {
  std::string text = fmt::format("mere.run: error: {}\n", error.what());
  if (!error.hint().empty()) text += fmt::format("hint: {}\n", error.hint());
  return text;
}

void mark_beaten(const std::vector<std::string>& given_flags, Environment& environment) {
  static const std::map<std::string, std::string> kVariables = {
      {"--backend", "MERERUN_BACKEND"},
      {"--device", "MERERUN_DEVICE"},
      {"--threads", "MERERUN_THREADS"},
      {"--cpu-isa", "MERERUN_CPU_ISA"},
      {"--log-level", "MERERUN_LOG"},
      {"--api-key", "MERERUN_API_KEY"},
      {"--speculation", "MERERUN_Q35_MTP_SPECULATION"},
      {"--mtp-block-size", "MERERUN_Q35_MTP_BLOCK_SIZE"},
      {"--prefix-cache-bytes", "MERERUN_PREFIX_CACHE_BYTES"},
  };
  for (const std::string& flag : given_flags) {
    const auto variable = kVariables.find(flag);
    if (variable != kVariables.end()) {
      environment.overrides.set_effect(variable->second, OverrideEffect::kNoEffect);
    }
  }
}

std::string version_text() {
  return fmt::format("mere.run {} ({})\nbackends: {}\nnumeric contract: {}\n", project_version(),
                     build_commit(), MERERUN_BACKENDS, kNumericContractVersion);
}

int run_program(const std::vector<std::string>& arguments, Environment environment,
                const std::string& program_path) {
  try {
    return dispatch(arguments, environment, program_path);
  } catch (const Error& error) {
    std::fputs(error_text(error).c_str(), stderr);
    return exit_code_of(error.code());
  } catch (const std::bad_alloc&) {
    return fail("memory: expected more of it, got none from the system", kExitOutOfMemory);
  } catch (const std::exception& error) {
    return fail(fmt::format("internal: expected no exception here, got {}", error.what()), kExitFailure);
  }
}

}  // namespace mererun
