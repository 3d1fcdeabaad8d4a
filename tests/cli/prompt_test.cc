#include "cli/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mererun {

namespace {

using json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string no_stdin() { throw std::logic_error("stdin was read"); }

/// A file that goes away with the test.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("mererun-prompt-" + std::to_string(getpid()))) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

template <typename Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(name_of(error.code())) + " " + error.what();
  }
  return "accepted";
}

TEST(PromptSource, StdinOnlyWhenNothingElseAndNoTerminal) {
  TextChatOptions options;
  EXPECT_EQ(prompt_source(options, false), PromptSource::kStdin);
  EXPECT_THAT(refusal([&] { prompt_source(options, true); }), HasSubstr("expected one of --prompt"));
  options.interactive = true;
  EXPECT_EQ(prompt_source(options, true), PromptSource::kTurns);
  EXPECT_EQ(prompt_source(options, false), PromptSource::kTurns);
  options.prompt = "x";
  EXPECT_EQ(prompt_source(options, false), PromptSource::kText);
  options.prompt.reset();
  options.prompt_file = "x";
  EXPECT_EQ(prompt_source(options, true), PromptSource::kFile);
  options.prompt_file.reset();
  options.messages_file = "x";
  EXPECT_EQ(prompt_source(options, true), PromptSource::kMessages);
}

TEST(FirstMessages, SystemComesFirst) {
  TextChatOptions options;
  options.system = "Be brief.";
  options.prompt = "Hi";
  EXPECT_EQ(first_messages(options, PromptSource::kText, no_stdin),
            json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])"));
  EXPECT_EQ(first_messages(options, PromptSource::kTurns, no_stdin).size(), 1u);
  options.system = "\xff";
  EXPECT_THAT(refusal([&] { first_messages(options, PromptSource::kText, no_stdin); }),
              HasSubstr("invalid_argument --system: expected UTF-8 text"));
}

TEST(FirstMessages, OneLineEndOfPipedTextIsDropped) {
  TextChatOptions options;
  const auto content = [&](const std::string& text) {
    return first_messages(options, PromptSource::kStdin, [&] { return text; })[0]["content"]
        .get<std::string>();
  };
  EXPECT_EQ(content("two\nlines\n"), "two\nlines");
  EXPECT_EQ(content("x\r\n"), "x");
  EXPECT_EQ(content("x\n\n"), "x\n");
  EXPECT_THAT(refusal([&] { content(" \n\t\n"); }),
              HasSubstr("invalid_argument stdin: expected a prompt, got nothing"));
  EXPECT_THAT(refusal([&] { content("\xff\xfe"); }), HasSubstr("stdin: expected UTF-8 text"));
}

TEST(FirstMessages, FilesAreReadAndMissed) {
  TextChatOptions options;
  const ScratchFile file("from a file\n");
  options.prompt_file = file.path();
  EXPECT_EQ(first_messages(options, PromptSource::kFile, no_stdin)[0]["content"], "from a file");
  options.prompt_file = file.path() + ".absent";
  EXPECT_THAT(refusal([&] { first_messages(options, PromptSource::kFile, no_stdin); }),
              HasSubstr("not_found "));
  options.prompt_file = std::filesystem::temp_directory_path().string();
  EXPECT_THAT(refusal([&] { first_messages(options, PromptSource::kFile, no_stdin); }), HasSubstr("io "));
}

TEST(FirstMessages, ConversationFiles) {
  TextChatOptions options;
  const ScratchFile file(R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])");
  options.messages_file = file.path();
  EXPECT_EQ(first_messages(options, PromptSource::kMessages, no_stdin).size(), 2u);
  options.system = "another";
  EXPECT_THAT(refusal([&] { first_messages(options, PromptSource::kMessages, no_stdin); }),
              HasSubstr("--system"));
}

TEST(ParseMessages, AcceptsEveryRoleAndTextParts) {
  const json messages = parse_messages(R"([
    {"role": "system", "content": "s"}, {"role": "developer", "content": "d"},
    {"role": "user", "content": [{"type": "text", "text": "u"}]},
    {"role": "assistant", "content": null, "tool_calls": []}, {"role": "tool", "content": "42"}])",
                                       "m.json");
  EXPECT_EQ(messages.size(), 5u);
}

TEST(ParseMessages, KeepsTheOrderOfKeys) {
  const char* text =
      R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":2}}}]}])";
  EXPECT_EQ(parse_messages(text, "m.json").dump(), text);
}

TEST(ParseMessages, BoundsTheNesting) {
  const auto nested = [](int levels) {  // two levels are the list and the message
    const auto count = static_cast<std::size_t>(levels - 2);
    return R"([{"role":"user","content":"x","y":)" + std::string(count, '[') + std::string(count, ']') + "}]";
  };
  EXPECT_EQ(parse_messages(nested(kMostNesting), "m.json").size(), 1u);
  for (const int levels : {kMostNesting + 1, 200'000}) {
    EXPECT_THAT(refusal([&] { parse_messages(nested(levels), "m.json"); }),
                HasSubstr("invalid_argument m.json: expected at most 64 levels of nesting, got more"));
  }
}

TEST(ParseMessages, ANulDoesNotEndTheText) {
  const std::string text = R"([{"role":"user","content":"x"}])" + std::string("\0 7", 3);
  EXPECT_THAT(refusal([&] { parse_messages(text, "m.json"); }),
              HasSubstr("m.json: expected JSON, got a NUL at byte 31"));
}

TEST(ParseMessages, SaysWhatIsWrongAndWhere) {
  const auto message = [](const char* text) { return refusal([&] { parse_messages(text, "m.json"); }); };
  EXPECT_THAT(message("[{"), HasSubstr("invalid_argument m.json: expected JSON, got an error at byte 3"));
  EXPECT_THAT(message("{}"), HasSubstr("m.json: expected a list of messages, got object"));
  EXPECT_THAT(message("[]"), HasSubstr("got an empty one"));
  EXPECT_THAT(message(R"([{"role":"user","content":"x"},7])"),
              HasSubstr("m.json: message 1: expected an object"));
  EXPECT_THAT(message(R"([{"content":"x"}])"), HasSubstr("message 0.role: expected one of system"));
  EXPECT_THAT(message(R"([{"role":"robot","content":"x"}])"), HasSubstr("got \"robot\""));
  EXPECT_THAT(message(R"([{"role":"user"}])"),
              HasSubstr("message 0.content: expected a text or a list of parts, got none"));
  EXPECT_THAT(message(R"([{"role":"assistant","content":null}])"), HasSubstr("message 0.content"));
  EXPECT_THAT(message(R"([{"role":"user","content":[{"type":"image_url"}]}])"),
              HasSubstr("unsupported m.json: message 0.content[0]: expected a text part, got image_url"));
  EXPECT_THAT(message(R"([{"role":"user","content":[{"type":"text"}]}])"),
              HasSubstr("a text part with a text"));
}

}  // namespace

}  // namespace mererun
