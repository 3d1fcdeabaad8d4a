#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "grammar/compile.h"
#include "tests/grammar/text_probe.h"

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

const Json& tools() {
  static const Json kTools = Json::parse(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "unit": {"enum": ["C", "F"]}, "code": {"type": "string", "pattern": "^[A-Z]{2,3}$"},
      "note": {"type": "string", "maxLength": 5}, "where": {"type": "object", "properties": {"lat": {"type": "number"},
      "tag": {"type": "string"}}}}, "required": ["city"]}}},
    {"name": "now"},
    {"name": "empty", "input_schema": {"type": "object", "properties": {}}}])");
  return kTools;
}

std::unique_ptr<TokenConstraint> calls(const ToolCallOptions& options) {
  return compile_tool_calls(tools(), options, byte_vocabulary());
}

std::string weather(const std::string& parameters) {
  return "<tool_call>\n<function=weather>\n" + parameters + "</function>\n</tool_call>";
}
std::string parameter(const std::string& key, const std::string& value) {
  return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
}

TEST(ToolCalls, ArgumentsAreTyped) {
  const auto c = calls({.name = "weather", .allows_several = false});
  const std::string city = parameter("city", "Oslo");
  for (const std::string& yes :
       {city, parameter("city", ""), parameter("city", "a\n<b> \"c\" </p> 東\n"),
        city + parameter("days", "14"), city + parameter("unit", "F"), city + parameter("code", "ABC"),
        city + parameter("note", "1234\n"),
        city + parameter("days", "3") + parameter("where", "{\"lat\": 1.5, \"tag\": \"\\u003c/p\"}")})
    EXPECT_TRUE(accepts(*c, weather(yes))) << yes;
  for (const std::string& no :
       {std::string(), parameter("days", "3"), parameter("days", "3") + city, city + parameter("days", "15"),
        city + parameter("days", "three"), city + parameter("unit", "K"), city + parameter("code", "abc"),
        city + parameter("note", "123456"), city + parameter("color", "red"), city + city,
        city + parameter("where", "{\"tag\": \"</p\"}"), parameter("city", "a</parameter>b"),
        parameter("city", "a<parameter=x>b"), parameter("city", "</function>"), std::string("text")})
    EXPECT_FALSE(accepts(*c, weather(no))) << no;
  EXPECT_FALSE(accepts_beginning(*c, "I'll look")) << "no text before the call";
}

TEST(ToolCalls, TheTagsAreTokens) {
  const auto c = calls({});
  const TokenMask* mask = c->mask();
  int allowed = 0;
  for (TokenId id = 0; id < byte_vocabulary()->size(); ++id) allowed += mask->allows(id) ? 1 : 0;
  EXPECT_EQ(allowed, 1);
  EXPECT_TRUE(mask->allows(kToolCallToken));
}

TEST(ToolCalls, ChoiceAndNumberOfCalls) {
  const std::string now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  const std::string empty = "<tool_call>\n<function=empty>\n</function>\n</tool_call>";
  const auto several = calls({});
  EXPECT_TRUE(accepts(*several, now));
  EXPECT_TRUE(accepts(*several, now + "\n" + empty + "\n" + weather(parameter("city", "x"))));
  EXPECT_FALSE(accepts(*several, now + now));
  const auto one = calls({.name = "", .allows_several = false});
  EXPECT_TRUE(accepts(*one, empty));
  EXPECT_FALSE(accepts_beginning(*one, now + "\n"));
  const auto named = calls({.name = "now", .allows_several = true});
  EXPECT_TRUE(accepts(*named, now + "\n" + now));
  EXPECT_FALSE(accepts(*named, empty));
}

TEST(ToolCalls, Errors) {
  EXPECT_THROW(calls({.name = "unknown", .allows_several = true}), Error);
  for (const char* text : {R"([])", R"({})", R"([{"name": 5}])", R"([{"name": "a>b"}])",
                           R"([{"name": "a\nb"}])", R"([{"name": "a", "parameters": {"not": {}}}])",
                           R"([{"name": "a", "parameters": {"properties": {"x>": {}}}}])",
                           R"([{"name": "a", "parameters": {"type": "string"}}])"})
    EXPECT_THROW(compile_tool_calls(Json::parse(text), {}, byte_vocabulary()), Error) << text;
  const std::string error = refusal_of([] {
    return compile_tool_calls(
        Json::parse(R"([{"name": "f", "parameters": {"properties": {"x": {"not": {}}}}}])"), {},
        byte_vocabulary());
  });
  EXPECT_NE(error.find("\"f\""), std::string::npos);
  EXPECT_NE(error.find("#/properties/x/not"), std::string::npos);
}

TEST(Reasoning, TheAnswerIsConstrained) {
  const auto vocabulary = byte_vocabulary();
  const auto inner = compile_grammar("root ::= \"{}\" | \"\\n!\"", vocabulary);
  const auto start = constrain_after_reasoning(inner->clone(), vocabulary);
  EXPECT_EQ(start->mask(), nullptr);
  start->accept('x');
  start->accept(kEosToken);  // not the wrapper's to judge
  EXPECT_FALSE(start->is_complete());
  const auto spelled = start->clone();
  start->accept(kEndThinkToken);
  for (const char c : std::string("<</think>")) spelled->accept(c);
  for (TokenConstraint* c : {start.get(), spelled.get()}) {
    ASSERT_NE(c->mask(), nullptr);
    EXPECT_TRUE(c->mask()->allows('{'));
    EXPECT_TRUE(c->mask()->allows('\n'));
    EXPECT_FALSE(c->mask()->allows('x'));
  }
  const auto own_line_end = start->clone();
  own_line_end->accept('\n');  // the answer may begin with it, so it is the answer's
  EXPECT_TRUE(own_line_end->mask()->allows('!'));
  EXPECT_FALSE(own_line_end->mask()->allows('{'));
  start->accept('{');
  EXPECT_FALSE(start->mask()->allows('\n'));
  start->accept('}');
  EXPECT_TRUE(start->is_complete());
}

TEST(Reasoning, LineEndsBeforeTheAnswer) {
  const auto vocabulary = byte_vocabulary();
  const auto c = constrain_after_reasoning(compile_json_object(vocabulary), vocabulary);
  c->accept(kEndThinkToken);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(c->mask()->allows('\n'));
    c->accept('\n');
  }
  EXPECT_FALSE(c->mask()->allows('\n'));
  EXPECT_TRUE(c->mask()->allows('{'));
}

TEST(Reasoning, ATokenMayNotRunOnIntoTheAnswer) {
  const std::vector<GrammarVocabulary::Token> tokens = {
      {"<", false},  {"/think", false},     {">", false}, {">\n\n", false},
      {">x", false}, {"a</think>b", false}, {"{}", false}};
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<TokenId>{});
  const auto c = constrain_after_reasoning(compile_grammar("root ::= \"{}\"", vocabulary), vocabulary);
  ASSERT_NE(c->mask(), nullptr);
  EXPECT_FALSE(c->mask()->allows(5));
  EXPECT_TRUE(c->mask()->allows(4));
  c->accept(0);
  c->accept(1);
  EXPECT_TRUE(c->mask()->allows(2) && c->mask()->allows(3));
  EXPECT_FALSE(c->mask()->allows(4));
  c->accept(3);
  EXPECT_TRUE(c->mask()->allows(6));
  c->accept(6);
  EXPECT_TRUE(c->is_complete());
}

}  // namespace
}  // namespace mererun::testing
