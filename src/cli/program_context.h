#pragma once

#include <string>

namespace mererun {

struct Environment;
class Interrupts;

/// Which of the standard streams are terminals.
struct Terminal {
  bool is_stdin = false;
  bool is_stdout = false;
  bool is_stderr = false;
  int stderr_columns = 80;

  static Terminal of_process();
};

/// What a command gets besides its options. The references outlive the command.
struct ProgramContext {
  const Environment& environment;
  Interrupts& interrupts;
  Terminal terminal;
  std::string program_path;  // absolute, of the running executable
};

}  // namespace mererun
