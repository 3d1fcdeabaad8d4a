// `text chat` with a form of the reply: JSON, a schema, a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_binary.h"
#include "tests/support/temp_folder.h"

namespace mererun::testing {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Json = nlohmann::json;

constexpr const char* kSchema =
    R"({"type": "object", "required": ["name", "n"], "additionalProperties": false,
  "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": -3, "maximum": 40}}})";
constexpr const char* kGrammar = "root ::= \"def \" [a-z]{2,6} \"(\" [a-z] (\", \" [a-z]){1,9} \"):\\n\"";

RunResult chat(const std::vector<std::string>& more, const std::string& input = {}) {
  std::vector<std::string> words{"text", "chat"};
  words.insert(words.end(), more.begin(), more.end());
  return run_binary(words, input);
}

/// The report of one reply of the bundled model.
Json reply(const std::vector<std::string>& form, const char* temperature, const char* speculation) {
  std::vector<std::string> words{"--prompt",      "Write a Python function.",
                                 "--max-tokens",  "60",
                                 "--temperature", temperature,
                                 "--speculation", speculation,
                                 "--seed",        "7",
                                 "--mtp-cost",    "fixed",
                                 "--json"};
  words.insert(words.end(), form.begin(), form.end());
  const RunResult result = chat(words);
  EXPECT_EQ(result.status, 0) << result.errors;
  return Json::parse(result.output);
}

/// The text of a reply that is the same drafted and not.
std::string exact_reply(const std::vector<std::string>& form, const char* temperature) {
  const Json drafted = reply(form, temperature, "on");
  const Json serial = reply(form, temperature, "off");
  EXPECT_EQ(drafted["outputSHA256"], serial["outputSHA256"]) << drafted["response"] << serial["response"];
  EXPECT_EQ(drafted["generatedTokens"], serial["generatedTokens"]);
  EXPECT_EQ(drafted["acceleration"]["route"], "mtp-speculative");
  EXPECT_GT(drafted["acceleration"]["draftedTokens"], 0);
  return drafted["response"];
}

TEST(ReplyForms, HoldDraftedAndNot) {
  const TempFolder folder;
  write_file(folder / "schema.json", kSchema);
  write_file(folder / "calls.gbnf", kGrammar);
  for (const char* temperature : {"0", "0.8"}) {
    const Json value =
        Json::parse(exact_reply({"--json-schema", (folder / "schema.json").string()}, temperature));
    EXPECT_TRUE(value["name"].is_string());
    EXPECT_TRUE(value["n"] >= -3 && value["n"] <= 40) << value;
    EXPECT_EQ(value.size(), 2U);
    EXPECT_THAT(exact_reply({"--grammar", (folder / "calls.gbnf").string()}, temperature),
                MatchesRegex("def [a-z]+\\([a-z](, [a-z])+\\):\n"));
    EXPECT_EQ(exact_reply({"--response-format", "json_object"}, temperature).front(), '{');
  }
}

TEST(ReplyForms, BindEveryTurnOfAConversation) {
  const TempFolder folder;
  write_file(folder / "yes.gbnf", "root ::= \"yes\" | \"no\"");
  const RunResult result =
      chat({"--interactive", "--grammar", (folder / "yes.gbnf").string(), "--temperature", "0"},
           "Is it?\nAnd now?\n");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output, MatchesRegex("(yes|no)\n(yes|no)\n"));
}

TEST(ReplyForms, MistakesAreFoundBeforeAModelIsSought) {
  const TempFolder folder;
  const auto refusal = [&](const char* option, const std::string& text) {
    write_file(folder / "form", text);
    const RunResult result =
        chat({"--prompt", "a", "-m", "/nonexistent", option, (folder / "form").string()});
    EXPECT_EQ(result.status, 64) << text << result.errors;
    return result.errors;
  };
  const std::string place = (folder / "form").string() + ": ";
  EXPECT_THAT(refusal("--grammar", "root ::= \"a\n"), HasSubstr(place));
  EXPECT_THAT(refusal("--grammar", "start ::= \"a\""), AllOf(HasSubstr(place), HasSubstr("root")));
  EXPECT_THAT(refusal("--json-schema", "{"), HasSubstr(place + "expected JSON, got an error at byte "));
  EXPECT_THAT(refusal("--json-schema", R"({"type": "integer", "multipleOf": 3})"),
              AllOf(HasSubstr(place), HasSubstr("multipleOf")));
  EXPECT_THAT(refusal("--json-schema", std::string(200, '[')), HasSubstr("128 levels of nesting"));
}

}  // namespace

}  // namespace mererun::testing
