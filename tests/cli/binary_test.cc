// The built program from outside: exit statuses, streams, help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ostream>

#include "cli/commands.h"
#include "cli/help_text.h"
#include "tests/cli/run_binary.h"
#include "tests/support/file_text.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

/// What tests/cli/help.txt has between the command line of `words` and the next one.
std::string stored_help(const std::string& words) {
  const std::string texts = file_text(MERERUN_SOURCE_DIR "/tests/cli/help.txt");
  const std::string heading = "$ mere.run " + (words.empty() ? "" : words + " ") + "--help\n";
  const auto found = texts.find(heading);
  if (found == std::string::npos) {
    ADD_FAILURE() << "tests/cli/help.txt has no line " << heading;
    return {};
  }
  const auto begin = found + heading.size();
  const auto next = texts.find("\n$ mere.run ", begin - 1);
  return next == std::string::npos ? texts.substr(begin) : texts.substr(begin, next + 1 - begin);
}

TEST(HelpSurfaces, EqualTheStoredTexts) {
  const auto main = run_binary({"--help"});
  EXPECT_EQ(main.status, 0);
  EXPECT_EQ(main.output, stored_help("")) << "scripts/check.sh --update-help stores the new text";
  for (const auto& command : make_commands()) {
    std::vector<std::string> words = command->words();
    words.push_back("--help");
    const auto result = run_binary(words);
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.errors, "");
    EXPECT_EQ(result.output, stored_help(command->text().words))
        << command->text().words << ": scripts/check.sh --update-help stores the new text";
  }
}

TEST(HelpSurfaces, FitTheirColumns) {
  const auto commands = make_commands();
  std::string text = main_help(commands) + group_help(commands, "model");
  for (const auto& command : commands) text += command->help();
  std::size_t begin = 0;
  while (begin < text.size()) {
    const auto end = text.find('\n', begin);
    EXPECT_LE(end - begin, kHelpColumns) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(HelpSurfaces, HelpWinsOverEverythingElse) {
  EXPECT_EQ(run_binary({"text", "chat", "--top-p", "7", "-h"}).status, 0);
  EXPECT_EQ(run_binary({"text", "chat", "--nonsense", "--help"}).status, 0);
  EXPECT_THAT(run_binary({"model", "--help"}).output, HasSubstr("model benchmark q38-verification"));
}

TEST(Version, HasItsFourParts) {
  const auto result = run_binary({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.output, MatchesRegex("mere\\.run [0-9]+\\.[0-9]+\\.[0-9]+ \\(([0-9a-f]+|unknown)\\)\n"
                                          "backends: cpu(, cuda)?\nnumeric contract: [0-9]+\n"));
}

struct Refusal {
  const char* name;
  std::vector<std::string> arguments;
  int status;
  const char* message;  // what follows "mere.run: error: "
};

void PrintTo(const Refusal& refusal, std::ostream* stream) { *stream << refusal.name; }

class ExitCodes : public ::testing::TestWithParam<Refusal> {};

TEST_P(ExitCodes, OneErrorLineAndNothingOnStdout) {
  const Refusal& refusal = GetParam();
  const auto result = run_binary(refusal.arguments);
  EXPECT_EQ(result.status, refusal.status);
  EXPECT_EQ(result.output, "");
  EXPECT_THAT(result.errors, StartsWith(std::string("mere.run: error: ") + refusal.message));
}

INSTANTIATE_TEST_SUITE_P(
    Usage, ExitCodes,
    ::testing::Values(
        Refusal{"none", {}, 64, "command: expected one of text, model, api, got nothing\n"},
        Refusal{"group",
                {"tex", "chat"},
                64,
                "command: expected one of text, model, api, got \"tex\"\nhint: did you mean text?\n"},
        Refusal{"unfinished",
                {"model", "benchmark"},
                64,
                "model benchmark: expected one of q36-mtp, q38-verification, got nothing\n"},
        Refusal{"single", {"text"}, 64, "text: expected chat, got nothing\n"},
        Refusal{"command",
                {"model", "benchmark", "q36-mpt"},
                64,
                "model benchmark: expected one of q36-mtp, q38-verification, got \"q36-mpt\"\nhint: did you "
                "mean q36-mtp?\n"},
        Refusal{
            "misspelt_version",
            {"--verson"},
            64,
            "command: expected one of text, model, api, got \"--verson\"\nhint: did you mean --version?\n"},
        Refusal{"version_of_something",
                {"--version", "--json"},
                64,
                "--version: expected nothing behind it, got \"--json\"\n"},
        Refusal{"folder_as_word",
                {"model", "verify", "models/a"},
                64,
                "model verify: expected options, got the word \"models/a\"\nhint: -m DIR names a "
                "checkpoint folder; quote a value that holds spaces\n"},
        Refusal{"option",
                {"text", "chat", "--pormpt=x"},
                64,
                "text chat: expected a known option, got --pormpt\nhint: did you mean --prompt?\n"},
        Refusal{
            "word",
            {"text", "chat", "hello"},
            64,
            "text chat: expected options, got the word \"hello\"\nhint: --prompt TEXT gives the prompt; "},
        Refusal{"last_word",
                {"chat"},
                64,
                "command: expected one of text, model, api, got \"chat\"\nhint: did you mean text chat?\n"},
        Refusal{"file_for_folder",
                {"text", "chat", "--prompt", "a", "--model-root", "/dev/null"},
                66,
                "/dev/null: expected a checkpoint folder, got a file\n"},
        Refusal{"after_dashes", {"model", "list", "--", "x"}, 64, "model list: "},
        Refusal{
            "no_value", {"text", "chat", "--prompt"}, 64, "text chat --prompt: expected a value, got none\n"},
        Refusal{"twice",
                {"text", "chat", "--prompt", "a", "--prompt", "b"},
                64,
                "--prompt: expected one value, got 2 of them\n"},
        Refusal{"range",
                {"text", "chat", "--prompt", "a", "--top-p", "0"},
                64,
                "--top-p: expected a number above 0 and at most 1, got \"0\"\n"},
        Refusal{"before_load",
                {"text", "chat", "--prompt", "a", "--model-root", "/nonexistent", "--max-tokens", "0"},
                64,
                "--max-tokens: expected an integer from 1 to 2147483647, got \"0\"\n"},
        Refusal{"count_beyond_int",
                {"text", "chat", "--prompt", "a", "--max-tokens", "4294967297"},
                64,
                "--max-tokens: expected an integer from 1 to 2147483647, got \"4294967297\"\n"},
        Refusal{"form_without_file",
                {"text", "chat", "--prompt", "a", "--grammar", "/nonexistent.gbnf"},
                66,
                "/nonexistent.gbnf: expected a file, got none\n"},
        Refusal{"system_bytes",
                {"text", "chat", "--system", "\xff", "--prompt", "a"},
                64,
                "--system: expected UTF-8 text, got bytes that are none\n"},
        Refusal{"switch_value", {"model", "list", "--all=5"}, 64, "--all: expected no value, got \"5\"\n"},
        Refusal{"image",
                {"text", "chat", "--prompt", "a", "--image", "x.png"},
                69,
                "text chat --image: expected a checkpoint with a vision tower, got "},
        Refusal{"convert_source",
                {"model", "convert", "--source", "/nonexistent", "--output", "/nonexistent-too"},
                66,
                "/nonexistent: expected a checkpoint folder, got no such folder\n"},
        Refusal{"convert_bits",
                {"model", "convert", "--source", "a", "--output", "b", "--bits", "7"},
                64,
                "--bits: expected 2, 3, 4, 5, 6 or 8, got "}),
    [](const auto& instance) { return instance.param.name; });

TEST(ExitCodes, CommandsThatTheBuildLacksSayUnsupported) {
  for (const auto& command : make_commands()) {
    if (command->is_built()) continue;
    std::vector<std::string> words = command->words();
    const auto result = run_binary(words, "a prompt");
    EXPECT_EQ(result.status, 69) << command->text().words;
    EXPECT_THAT(result.errors, HasSubstr(command->text().words + ": expected a command that this build has"));
  }
}

TEST(Preflight, ThePlanIsForPeopleUnlessJsonIsAskedFor) {
  const auto plan =
      run_binary({"api", "serve", "--preflight", "--host", "::1", "--rate-limit-per-minute", "0"});
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.output, StartsWith("model         demo-dense-4bit\nfolder        "));
  EXPECT_THAT(plan.output, HasSubstr("\naddress       http://[::1]:8080/\nkey           none\n"));
  EXPECT_THAT(plan.output, HasSubstr("\nrate limit    none\n"));
  EXPECT_EQ(plan.output.find_first_of("{}\""), std::string::npos) << plan.output;
  EXPECT_THAT(run_binary({"api", "serve", "--preflight", "--json"}).output, StartsWith("{\n"));
}

/// A short run of `model benchmark q36-mtp` without drafts.
RunResult short_benchmark(std::vector<std::string> more) {
  more.insert(more.begin(), {"model", "benchmark", "q36-mtp", "--decode-tokens", "4", "--warmups", "0",
                             "--variants", "baseline", "--json"});
  return run_binary(more);
}

TEST(Prompts, AreUtf8AndNotBlankForEveryCommand) {
  const TempFolder folder;
  const std::string latin1 = folder.write("latin1.txt", "caf\xe9\n"),
                    blank = folder.write("blank.txt", " \n\n");
  const std::vector<std::array<std::string, 3>> bad = {
      {"--prompt-file", latin1, latin1 + ": expected UTF-8 text, got bytes that are none"},
      {"--prompt", "caf\xe9", "--prompt: expected UTF-8 text, got bytes that are none"},
      {"--prompt-file", blank, blank + ": expected a prompt, got nothing"},
      {"--prompt", "   ", "--prompt: expected a prompt, got nothing"}};
  for (const auto& [option, value, message] : bad) {
    for (const RunResult& result :
         {short_benchmark({option, value}), run_binary({"text", "chat", option, value})}) {
      EXPECT_EQ(result.status, 64);
      EXPECT_EQ(result.errors, "mere.run: error: " + message + "\n");
    }
  }
  const std::string good = folder.write("good.txt", "caf\xc3\xa9\n");  // its line end is no part of it
  const auto hash = [](const RunResult& result) {
    return result.output.substr(result.output.find("\"promptSHA256\""), 82);
  };
  EXPECT_EQ(hash(short_benchmark({"--prompt-file", good})),
            hash(short_benchmark({"--prompt", "caf\xc3\xa9"})));
}

TEST(ContextSize, BeyondTheModelsIsSaidToBe) {
  const std::string warning =
      "context size: expected at most 32768 (max_position_embeddings), got 99999; 32768 holds";
  const RunResult result = short_benchmark({"--prompt", "Hi", "--context-size", "99999"});
  EXPECT_THAT(result.errors, HasSubstr(warning));
  EXPECT_THAT(result.output, HasSubstr("\"contextSize\": 32768"));
  const auto chat =
      run_binary({"text", "chat", "--prompt", "Hi", "--max-tokens", "1", "--context-size", "99999"});
  EXPECT_THAT(chat.errors, HasSubstr(warning));
}

TEST(EnvironmentVariables, MeaninglessOnesAreWarnedAbout) {
  const auto result =
      run_binary({"model", "convert", "--source", "a", "--output", "b"}, "", {"MERERUN_THREAD=2"});
  EXPECT_THAT(result.errors, HasSubstr("MERERUN_THREAD: expected the name of a variable, got an unknown one; "
                                       "did you mean MERERUN_THREADS?"));
  const auto quiet =
      run_binary({"model", "convert", "--source", "a", "--output", "b", "--quiet"}, "", {"MERERUN_THREAD=2"});
  EXPECT_THAT(quiet.errors, StartsWith("mere.run: error: "));
}

}  // namespace

}  // namespace mererun::testing
