// What CONTRIBUTING.md says under "Commands in documents"
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

namespace {

namespace fs = std::filesystem;

const fs::path kSource = MERERUN_SOURCE_DIR;
const std::set<std::string> kReasons = {"build", "root", "large"};

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream.good()) << path;
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// README, CONTRIBUTING and every page of docs.
std::vector<fs::path> documents() {
  std::vector<fs::path> paths{kSource / "README.md", kSource / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kSource / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  return paths;
}

struct Block {
  std::string place;  // file:line
  std::string kind;   // what stands behind the opening fence
  std::vector<std::string> lines;
};

/// The fenced blocks of a document.
std::vector<Block> blocks_of(const fs::path& path) {
  std::vector<Block> blocks;
  std::istringstream text(text_of(path));
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside)
        blocks.push_back({path.filename().string() + ":" + std::to_string(number), line.substr(3), {}});
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  EXPECT_FALSE(inside) << path;
  return blocks;
}

/// A folder in which the commands find what they name: the program (also as build/release/bin/mere.run), two
/// tiny checkpoints, one in BF16, and a curl that does what they use.
class Workplace {
 public:
  Workplace() {
    fs::create_directories(root_ / "build/release/bin");
    fs::create_directories(root_ / "bin");
    fs::create_symlink(MERERUN_PROGRAM, root_ / "build/release/bin/mere.run");
    fs::create_symlink(MERERUN_PROGRAM, root_ / "bin/mere.run");
    write_model("path/to/checkpoint", tiny_dense());
    write_model("path/to/bf16", hugging_face(tiny_dense()));
    write_file(root_ / "input", "Hello\n");
    write_file(root_ / "bin/curl", kCurl);
    fs::permissions(root_ / "bin/curl", fs::perms::owner_all);
  }

  struct Result {
    int status;
    std::string output, errors;
  };

  /// Runs a command in a shell; stdin is a line of text.
  Result run(const std::string& command) {
    static const std::regex kLarge("--synthetic (?!small)");
    EXPECT_FALSE(std::regex_search(command, kLarge)) << command;
    const int status = wait(start(command, "out", "err"));
    return {status, text_of(root_ / "out"), text_of(root_ / "err")};
  }

  /// Starts a server; returns its process and port.
  std::pair<pid_t, std::string> serve(const std::string& command) {
    static const std::regex kPort("http://[^:]+:([0-9]+)/\n");
    const pid_t server = start("exec " + command + " --port 0", "server-out", "server-err");
    for (int attempt = 0; attempt < 6000; ++attempt) {  // far beyond what it takes
      std::smatch port;
      const std::string text = text_of(root_ / "server-out");
      if (std::regex_search(text, port, kPort)) return {server, port.str(1)};
      if (waitpid(server, nullptr, WNOHANG) == server) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    throw std::runtime_error("no server: " + text_of(root_ / "server-err"));
  }

  static int wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static constexpr const char* kCurl = R"(#!/usr/bin/python3
# curl URL -d BODY: prints the reply, waits while it loads, fails on a refusal.
import sys, time, urllib.error, urllib.request
url, flag, body = sys.argv[1:]
assert flag == "-d"
while True:
    try:
        print(urllib.request.urlopen(url, body.encode()).read().decode())
        break
    except urllib.error.HTTPError as error:
        if error.code != 503:
            sys.exit(error.read().decode())
        time.sleep(0.01)
)";

  void write_model(const char* name, TinySpec spec) {
    spec.vocabulary = 8192;
    spec.max_positions = 1024;
    write_tiny_checkpoint(root_ / name, spec);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      fs::copy_file(kSource / "models/demo-dense-4bit" / file, root_ / name / file,
                    fs::copy_options::overwrite_existing);
  }

  pid_t start(const std::string& command, const std::string& out, const std::string& err) {
    write_file(root_ / out, "");
    const std::string script =
        "cd '" + root_.path().string() + "' && { " + command + "\n} <input >>" + out + " 2>" + err;
    std::vector<std::string> words{"/bin/sh", "-c", script};
    std::vector<std::string> environment{"PATH=" + (root_ / "bin").string() + ":/usr/bin:/bin",
                                         "HOME=" + root_.path().string()};
    std::vector<char*> arguments, variables;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& variable : environment) variables.push_back(variable.data());
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments.data(), variables.data()) != 0)
      throw std::runtime_error("no shell");
    return child;
  }

  TempFolder root_;
};

/// Runs a block line by line. A server goes on until it ends.
void run_block(const Block& block) {
  Workplace workplace;
  std::optional<pid_t> server;
  std::string port;
  for (std::string line : block.lines) {
    if (line.find(" api serve") != std::string::npos) {
      ASSERT_FALSE(server) << block.place << ": two servers";
      std::tie(server, port) = workplace.serve(line);
      continue;
    }
    if (const auto at = line.find(":8080/"); at != std::string::npos && server) line.replace(at + 1, 4, port);
    const auto result = workplace.run(line);
    EXPECT_EQ(result.status, 0) << block.place << ": " << line << "\n" << result.errors;
    EXPECT_TRUE(!result.output.empty() || line.find(" > ") != std::string::npos)
        << block.place << ": " << line << " says nothing";
  }
  if (!server) return;
  kill(*server, SIGTERM);
  EXPECT_EQ(Workplace::wait(*server), 0) << block.place;
}

TEST(DocumentCommands, BlocksRun) {
  int ran = 0;
  for (const fs::path& path : documents()) {
    for (const Block& block : blocks_of(path)) {
      if (block.kind != "sh") continue;
      ++ran;
      run_block(block);
    }
  }
  EXPECT_GE(ran, 6);
}

TEST(DocumentCommands, EveryBlockSaysWhatItIs) {
  static const std::regex kByHand("sh by-hand=([a-z]+)");
  for (const fs::path& path : documents()) {
    for (const Block& block : blocks_of(path)) {
      std::smatch reason;
      if (block.kind == "text") {
        for (const std::string& line : block.lines)
          EXPECT_FALSE(line.starts_with("mere.run ")) << block.place << ": a command in a block of text";
      } else if (std::regex_match(block.kind, reason, kByHand)) {
        EXPECT_TRUE(kReasons.contains(reason.str(1))) << block.place << ": " << reason.str(1);
      } else {
        EXPECT_EQ(block.kind, "sh") << block.place << ": expected sh, sh by-hand=REASON or text";
      }
    }
  }
}

/// The command of the table that a line of the program's begins with; null where there is none.
const Command* command_in(const std::vector<std::unique_ptr<Command>>& commands, const std::string& line) {
  for (const auto& command : commands) {
    if ((line + " ").starts_with("mere.run " + command->text().words + " ")) return command.get();
  }
  return nullptr;
}

/// What isn't run is at least there: scripts, presets, commands and options of the program.
TEST(DocumentCommands, BlocksByHandNameWhatExists) {
  const auto commands = make_commands();
  const std::string presets = text_of(kSource / "CMakePresets.json");
  static const std::regex kPreset("--preset (\\w+)"), kOption(" (--[a-z][a-z-]*)");
  const auto names = [](const std::string& line, const std::regex& pattern) {
    std::vector<std::string> found;
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match)
      found.push_back(match->str(1));
    return found;
  };
  for (const fs::path& path : documents()) {
    for (const Block& block : blocks_of(path)) {
      if (!block.kind.starts_with("sh by-hand=")) continue;
      for (const std::string& line : block.lines) {
        const std::string word = line.substr(0, line.find(' '));
        for (const std::string& preset : names(line, kPreset))
          EXPECT_NE(presets.find("\"name\": \"" + preset + "\""), std::string::npos) << block.place << line;
        EXPECT_TRUE(!word.starts_with("scripts/") || fs::exists(kSource / word)) << block.place << line;
        if (word != "mere.run") continue;
        EXPECT_EQ(block.kind, "sh by-hand=large") << block.place << ": " << line << " can be run";
        const Command* command = command_in(commands, line);
        ASSERT_NE(command, nullptr) << block.place << line;
        std::set<std::string> options;
        for (const OptionSpec& option : command->options().options()) options.insert(option.long_name());
        for (const std::string& name : names(line, kOption))
          EXPECT_TRUE(options.contains(name)) << block.place << ": " << name;
      }
    }
  }
}

/// The code spans of the documents that are commands of the program with options, words in capitals replaced
/// by what they stand for.
std::map<std::string, std::string> commands_in_spans() {
  static const std::regex kSpan("`(mere\\.run [^`]*--?[a-z][^`]*)`"), kWord("\\b[A-Z]{3,}\\b");
  const std::map<std::string, std::string> stand_ins = {
      {"FOLDER", "path/to/checkpoint"}, {"MODEL", "demo-moe-4bit"}, {"PROMPT", "Hello"}};
  std::map<std::string, std::string> commands;
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    for (std::sregex_iterator match(text.begin(), text.end(), kSpan), end; match != end; ++match) {
      std::string command = match->str(1);
      for (std::smatch word; std::regex_search(command, word, kWord);) {
        const auto stand_in = stand_ins.find(word.str());
        if (stand_in == stand_ins.end()) throw std::runtime_error(path.string() + ": what is " + word.str());
        command.replace(static_cast<std::size_t>(word.position()), word.str().size(), stand_in->second);
      }
      commands[command] = path.filename().string();
    }
  }
  return commands;
}

TEST(DocumentCommands, SpansWithOptionsRun) {
  Workplace workplace;
  const auto commands = commands_in_spans();
  EXPECT_GE(commands.size(), 6U);
  for (const auto& [command, page] : commands) {
    const auto result = workplace.run(command);
    EXPECT_EQ(result.status, 0) << page << ": " << command << "\n" << result.errors;
    EXPECT_FALSE(result.output.empty()) << page << ": " << command;
  }
}

TEST(DocumentCommands, SpansWithoutOptionsNameCommands) {
  static const std::regex kSpan("`mere\\.run ([a-z][a-z0-9 -]*)`"), kScript("`(?:sudo )?(scripts/[^` ]+)");
  const auto commands = make_commands();
  for (const fs::path& path : documents()) {
    const std::string text = text_of(path);
    for (std::sregex_iterator match(text.begin(), text.end(), kSpan), end; match != end; ++match) {
      if (match->str(1).find(" -") != std::string::npos) continue;  // run by the test above
      EXPECT_NE(command_in(commands, "mere.run " + match->str(1)), nullptr) << path << ": " << match->str(1);
    }
    for (std::sregex_iterator match(text.begin(), text.end(), kScript), end; match != end; ++match)
      EXPECT_TRUE(fs::exists(kSource / match->str(1))) << path << ": " << match->str(1);
  }
}

}  // namespace

}  // namespace mererun::testing
