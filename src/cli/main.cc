#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "cli/environment.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  // The name the shell used may be relative or a link; the models beside the program are found from the real
  // one.
  std::error_code error;
  std::string program_path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error && argc > 0) program_path = std::filesystem::absolute(argv[0], error).string();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return mererun::run_program(arguments, mererun::Environment::of_process(), program_path);
}
