// Writes completion and manual into a folder, at build time: write_shell_files FOLDER.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/build_info.h"
#include "cli/shell_files.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_shell_files FOLDER\n", stderr);
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  const auto commands = mererun::make_commands();
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream stream(folder / name, std::ios::binary);
    stream << text;
    stream.close();
    return stream.good();
  };
  const bool written =
      write("mere.run.bash", mererun::bash_completion(commands)) &&
      write("_mere.run", mererun::zsh_completion(commands)) &&
      write("mere.run.fish", mererun::fish_completion(commands)) &&
      write("mere.run.1", mererun::man_page(commands, std::string(mererun::project_version())));
  return written ? 0 : 74;
}
