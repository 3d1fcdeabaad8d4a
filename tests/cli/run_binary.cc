#include "tests/cli/run_binary.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

namespace mererun::testing {

namespace {

// Temporary files instead of pipes: no reader is needed while the program runs.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    descriptor_ = mkstemp(path_.data());
    if (descriptor_ < 0) throw std::runtime_error("cannot make a temporary file");
    if (write(descriptor_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot write a temporary file");
    }
    lseek(descriptor_, 0, SEEK_SET);
  }
  ~TemporaryFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::string text() const {
    std::ifstream stream(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }

 private:
  std::string path_ = (std::getenv("TMPDIR") != nullptr ? std::string(std::getenv("TMPDIR")) : "/tmp") +
                      "/mererun-cli-XXXXXX";
  int descriptor_ = -1;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

RunResult run_binary(const std::vector<std::string>& arguments, const std::string& input,
                     const std::vector<std::string>& variables) {
  const TemporaryFile in(input), out(""), err("");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.descriptor(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);

  std::vector<std::string> words = {MERERUN_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = {"PATH=/usr/bin:/bin"};
  environment.insert(environment.end(), variables.begin(), variables.end());
  pid_t child = 0;
  const int error = posix_spawn(&child, MERERUN_PROGRAM, &actions, nullptr, pointers(words).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " MERERUN_PROGRAM);
  int status = 0;
  rusage used = {};
  wait4(child, &status, 0, &used);
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .output = out.text(),
          .errors = err.text(),
          .peak_bytes = std::int64_t{used.ru_maxrss} * 1024};
}

}  // namespace mererun::testing
