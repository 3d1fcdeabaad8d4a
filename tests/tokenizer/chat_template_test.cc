#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const RenderLimits& limits = {}) {
  ChatTemplate chat_template = ChatTemplate::parse(source, "t");
  chat_template.set_limits(limits);
  return chat_template.render(variables);
}

/// The error that parsing or rendering ends with; fails the test when there is none.
Error error_of(const std::string& source, const Json& variables = Json::object(),
               const RenderLimits& limits = {}) {
  try {
    const std::string rendered = render(source, variables, limits);
    ADD_FAILURE() << source << " rendered " << rendered.substr(0, 200);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kInternal, "no error");
}

struct WhitespaceCase {
  const char* source;
  const char* rendered;
};

TEST(TemplateWhitespace, FollowsTheRulesOfTrimAndLstripBlocks) {
  // yes is true. What each tag eats: the blanks before it on its own line, and one newline after it.
  const WhitespaceCase cases[] = {
      {"a\n", "a"},
      {"a\n\n", "a\n"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"{% if yes %}\nx\n{% endif %}\ny", "x\ny"},
      {"  {% if yes %}  \nx\n  {% endif %}\ny", "  \nx\ny"},
      {"a {% if yes %}b{% endif %} c", "a b c"},
      {"a  {%- if yes -%}  b  {%- endif -%}  c", "abc"},
      {"a\n  {%+ if yes %}b{% endif %}", "a\n  b"},
      {"{% if yes +%}\nb{% endif %}", "\nb"},
      {"{{ 'x' }}\n{{ 'y' }}", "x\ny"},
      {"  {{ 'x' }}  ", "  x  "},
      {"a \n {{- 'x' -}} \n b", "axb"},
      {"  {# note #}\nx", "x"},
      {"a {#- note -#} b", "ab"},
      {"{% if yes %}\n  {% if yes %}\nx{% endif %}{% endif %}", "x"},
      {"{{ 'x' -}}\n  {% if yes %}y{% endif %}", "xy"},
      {"{% raw %}{{ x }}\n{% endraw %}\ny", "{{ x }}\ny"},
      {"{% raw -%}  x  {%- endraw %}  y", "x  y"},
      {"x\n\n{%- set a = 1 %}\n\ny", "x\ny"},
  };
  for (const WhitespaceCase& one : cases)
    EXPECT_EQ(render(one.source, {{"yes", true}}), one.rendered) << one.source;
}

TEST(TemplateErrors, SyntaxErrorsAreCorruptDataWithTheLine) {
  for (const char* source : {"a\n{% if x %}\nb", "a\n{{ x", "a\n{{ x ~ }}", "a\n{% bogus %}", "a\n{{ 'x }}",
                             "\n{# x", "x\n{{ (1] }}", "\n{% for x y %}"}) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << source;
    EXPECT_THAT(error.what(), ::testing::MatchesRegex("t:[23]: .*")) << source;
    EXPECT_THAT(error.what(), HasSubstr("expected")) << source;
  }
}

TEST(TemplateErrors, FailuresAreInvalidArgumentWithTheLine) {
  const Error error = error_of("a\n\n{% for m in messages %}\n{{ m.role.name\n  .deeper }}{% endfor %}",
                               {{"messages", {{{"role", "user"}}}}});
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(error.what(), "t:5: a value of type str has no attribute or item 'name'");
  EXPECT_STREQ(error_of("{{ 1 + missing }}").what(), "t:1: 'missing' is undefined");
  EXPECT_STREQ(error_of("\n{{ x|nosuch }}").what(), "t:2: expected a known filter, got 'nosuch'");
}

TEST(TemplateErrors, RaiseExceptionGivesTheTemplatesOwnText) {
  const std::string source =
      "{% if effort not in ['low', 'high'] %}{{ raise_exception('Unknown effort ' ~ effort ~ '.') }}{% endif "
      "%}";
  const Error error = error_of(source, {{"effort", "extreme"}});
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(error.what(), "Unknown effort extreme.");
  EXPECT_EQ(render(source, {{"effort", "low"}}), "");
}

TEST(TemplateErrors, TemplatesCannotLoadFiles) {
  for (const char* source : {"{% include '/etc/passwd' %}", "{% import 'x' as y %}",
                             "{% from 'x' import y %}", "{% extends 'x' %}"}) {
    EXPECT_EQ(error_of(source).code(), ErrorCode::kUnsupported) << source;
  }
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ open('/etc/passwd') }}", "{{ {}.__init__() }}"}) {
    EXPECT_EQ(error_of(source).code(), ErrorCode::kInvalidArgument) << source;
  }
}

TEST(TemplateErrors, IntegersThatDoNotFitAreErrors) {
  for (const char* source : {"{{ 2 ** 127 }}", "{{ (2 ** 100) * (2 ** 100) }}",
                             "{{ -(2 ** 126) - 2 ** 126 - 1 }}", "{{ ('9' * 60) | int }}",
                             "{{ 1e300 | int }}", "{{ 99999999999999999999999999999999999999999999 }}"}) {
    EXPECT_THAT(error_of(source).what(), StartsWith("t:1: ")) << source;
  }
  EXPECT_EQ(render("{{ n }} {{ n + 1 }}", {{"n", 18446744073709551615u}}),
            "18446744073709551615 18446744073709551616");
  EXPECT_EQ(render("{{ -(2 ** 126) * 2 // -1 if false else (2 ** 126 - 1) * 2 + 1 }}"),
            "170141183460469231731687303715884105727");
  EXPECT_THAT(error_of("{{ ((2 ** 126) * -2) // -1 }}").what(), HasSubstr("127 bits"));
  EXPECT_THAT(error_of("{{ ((2 ** 126) * -2) | abs }}").what(), HasSubstr("127 bits"));
}

TEST(TemplateLimits, WorkMemoryAndDepthAreBounded) {
  const std::string nested =
      "{% for a in r %}{% for a in r %}{% for a in r %}{% for a in r %}{% for a in r %}"
      "{{ a }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}";
  RenderLimits limits;
  limits.max_steps = 1'000'000;
  limits.max_string_bytes = 1 << 20;
  limits.max_value_bytes = 4 << 20;
  limits.max_output_bytes = 1 << 20;
  const struct {
    std::string source;
    const char* message;
  } cases[] = {
      {"{% set r = range(1000) %}" + nested, "steps of work"},
      {"{{ range(10 ** 9) }}", "at most 100000 elements"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested evaluations"},
      {"{% macro m(x) %}{{ x }}{{ m(m(x)) }}{% endmacro %}{{ m(1) }}", "nested evaluations"},
      {"{{ 'a' * 10 ** 12 }}", "a string of at most"},
      {"{{ 'a' * 10 ** 30 }}", "a string of at most"},
      {"{{ [1] * 10 ** 12 }}", "expected at most"},
      {"{{ '%1000000000d' % 1 }}", "a string of at most"},
      {"{{ '{:>99999999999999999999}'.format(1) }}", "a string of at most"},
      {"{{ 'a'.center(10 ** 12) }}", "a string of at most"},
      {"{{ 'a' | indent(10 ** 12) }}", "a string of at most"},
      {"{{ [[[1]]] | tojson(indent=10 ** 9) }}", "a string of at most"},
      {"{{ ('a' * 10 ** 6).replace('', 'b' * 1000) }}", "a string of at most"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(90) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       "a string of at most"},
      {"{% set ns = namespace(l=[1, 2]) %}{% for i in range(90) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
       "expected at most"},
      {"{% set l = [] %}{% for i in range(99999) %}{{ l.append('x' * 100) }}{% endfor %}",
       "expected at most"},
      {"{% for i in range(20000) %}{{ 'x' * 100 }}{% endfor %}", "bytes of output"},
      {"{% set l = [] %}{{ l.append(l) }}{{ l }}", "nested less deep"},
      {"{% set l = [] %}{{ l.append(l) }}{{ l | tojson }}", "nested less deep"},
      {"{% set l = [] %}{% set k = [] %}{{ l.append(l) }}{{ k.append(k) }}{{ l == k }}", "nested less deep"},
      {"{{ ('a' * 10 ** 6).rfind('b' + 'a' * 10 ** 5) }}", "steps of work"},
      {"{{ ('a' * 10 ** 6) | list }}", "expected at most"},
  };
  for (const auto& one : cases) {
    const Error error = error_of(one.source, Json::object(), limits);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << one.source;
    EXPECT_THAT(error.what(), StartsWith("t:1: ")) << one.source;
    EXPECT_THAT(error.what(), HasSubstr(one.message)) << one.source;
  }
}

TEST(TemplateLimits, DeepSourceIsRefusedNotOverflowing) {
  const auto repeated = [](const std::string& unit, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += unit;
    return out;
  };
  for (const std::string& source :
       {"{{ " + repeated("(", 100000) + " }}",
        "{{ " + repeated("[", 5000) + "1" + repeated("]", 5000) + " }}",
        "{{ 1" + repeated(" + 1", 100000) + " }}", "{{ x" + repeated(".a", 100000) + " }}",
        "{{ " + repeated("not ", 100000) + "1 }}", "{{ " + repeated("-", 100000) + "1 }}",
        "{{ 1" + repeated(" if 1 else 1", 100000) + " }}", repeated("{% if 1 %}", 100000),
        "{{ x" + repeated("|list", 100000) + " }}", "{{ x" + repeated("()", 100000) + " }}",
        "{% set " + repeated("(", 100000) + "a = 1 %}", "{{ 1" + repeated(" ** 1", 100000) + " }}"}) {
    EXPECT_EQ(error_of(source).code(), ErrorCode::kCorruptData) << source.substr(0, 20);
  }
  EXPECT_EQ(error_of(std::string(5 << 20, 'x')).code(), ErrorCode::kCorruptData);
  // What real templates do: long chains of text, many branches, some nesting.
  EXPECT_EQ(render("{{ 'a'" + repeated(" + 'a'", 300) + " }}").size(), 301u);
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 5000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(render(repeated("{% if 1 %}", 60) + "x" + repeated("{% endif %}", 60)), "x");
}

TEST(TemplateLimits, DeepVariablesAreRefused) {
  Json deep = Json::array();
  for (int i = 0; i < 10000; ++i) {
    Json outer = Json::array();
    outer.push_back(std::move(deep));
    deep = std::move(outer);
  }
  EXPECT_THAT(error_of("{{ x }}", {{"x", std::move(deep)}}).what(), HasSubstr("nested at most"));
}

TEST(TemplateLimits, DefaultsHoldALargeConversation) {
  Json messages = Json::array();
  for (int i = 0; i < 4000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'x') + "é"}});
  }
  const ChatTemplate chat_template =
      load_chat_template(std::string(MERERUN_SOURCE_DIR) + "/models/demo-dense-4bit");
  ChatInputs inputs;
  inputs.messages = &messages;
  EXPECT_GT(chat_template.render_chat(inputs).size(), 4'000'000u);
}

TEST(ChatTemplate, ControlBytesPassThroughAndAreEscapedInJson) {
  // A tool result with raw control bytes must render: verbatim as text, escaped inside JSON.
  const std::string content("\x1b[0m\x00\x07", 6);
  const Json variables = {{"content", content}};
  EXPECT_EQ(render("<{{ content }}>", variables), "<" + content + ">");
  EXPECT_EQ(render("{{ content | tojson }}", variables), "\"\\u001b[0m\\u0000\\u0007\"");
  EXPECT_EQ(render("{{ content | length }}", variables), "6");
}

TEST(ChatTemplate, MethodsMayChangeListsAndDicts) {
  EXPECT_EQ(render("{% set l = [3, 1] %}{{ l.append(2) }}{{ l.insert(0, 9) }}{{ l.extend(l) }}{{ l.pop() "
                   "}}{{ l.pop(0) }}"
                   "{{ l.sort() }}{{ l.remove(1) }}{{ l.reverse() }}{{ l }}"),
            "NoneNoneNone29NoneNoneNone[9, 3, 3, 2, 1]");
  EXPECT_EQ(render("{% set d = {'a': 1} %}{{ d.update({'b': 2}, c=3) }}{{ d.pop('a') }}{{ d.setdefault('z', "
                   "5) }}{{ d }}"),
            "None15{'b': 2, 'c': 3, 'z': 5}");
  EXPECT_EQ(render("{% set l = [1, 2] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}{{ l }}"),
            "[1, 2, 1, 2]");
}

TEST(ChatTemplate, LargeDictsFindEveryKey) {
  Json dict = Json::object();
  for (int i = 0; i < 200; ++i) dict["key" + std::to_string(i)] = i;
  EXPECT_EQ(
      render("{{ d.key0 + d.key199 + d['key7'] }} {{ 'key55' in d }} {{ 'key200' in d }}", {{"d", dict}}),
      "206 True False");
  EXPECT_EQ(
      render("{% set e = dict(d) %}{{ e.pop('key3') }}{{ e.key3 is defined }}{{ e.key199 }}{{ e | length }}",
             {{"d", dict}}),
      "3False199199");
}

TEST(ChatTemplate, ClockIsInjected) {
  ChatTemplate chat_template =
      ChatTemplate::parse("{{ strftime_now('%d %b %Y %H:%M') }}{{ strftime_now('') }}", "t");
  chat_template.set_clock([] {
    std::tm time{};
    time.tm_year = 126;
    time.tm_mon = 6;
    time.tm_mday = 4;
    time.tm_hour = 9;
    time.tm_min = 5;
    return time;
  });
  EXPECT_EQ(chat_template.render(Json::object()), "04 Jul 2026 09:05");
  EXPECT_THAT(error_of("{{ strftime_now('%2000d') }}").what(), HasSubstr("1024 bytes"));
}

TEST(ChatTemplate, ChatVariablesAreThoseOfTransformers) {
  ChatTemplate chat_template = ChatTemplate::parse(
      "{{ messages[0].content }}|{{ tools is none }}|{{ documents is none }}|{{ add_generation_prompt }}|{{ "
      "bos_token }}|"
      "{{ enable_thinking }}",
      "t");
  chat_template.set_special_tokens({{"bos_token", "<s>"}});
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const Json arguments = {{"enable_thinking", false}};
  ChatInputs inputs;
  inputs.messages = &messages;
  inputs.arguments = &arguments;
  EXPECT_EQ(chat_template.render_chat(inputs), "Hi|True|True|True|<s>|False");
  EXPECT_EQ(chat_template.render_chat({{"user", "Hi", {}}}, false), "Hi|True|True|False|<s>|");

  const Json reserved = {{"messages", Json::array()}};
  inputs.arguments = &reserved;
  EXPECT_THROW(chat_template.render_chat(inputs), Error);
  const Json no_array = "Hi";
  inputs.arguments = nullptr;
  inputs.messages = &no_array;
  EXPECT_THROW(chat_template.render_chat(inputs), Error);
}

TEST(ChatTemplate, EarlierRenderingIsAPrefixUntilReasoningIsDropped) {
  // A template that drops earlier reasoning once a new user message comes (field case B056): the renderings
  // share exactly the text before that reasoning, and all of it when the reasoning is kept.
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{%- set ns = namespace(last=-1) -%}"
      "{%- for m in messages if m.role == 'user' -%}{%- set ns.last = m.n -%}{%- endfor -%}"
      "{%- for m in messages -%}<{{ m.role }}>"
      "{%- if m.reasoning is defined and (keep or m.n > ns.last) -%}[{{ m.reasoning }}]{%- endif -%}"
      "{{ m.content }}{%- endfor -%}",
      "t");
  Json messages = {{{"n", 0}, {"role", "user"}, {"content", "Q"}},
                   {{"n", 1}, {"role", "assistant"}, {"content", "A"}, {"reasoning", "R"}}};
  for (const bool keep : {false, true}) {
    const std::string first = chat_template.render({{"messages", messages}, {"keep", keep}});
    Json longer = messages;
    longer.push_back({{"n", 2}, {"role", "user"}, {"content", "Q2"}});
    const std::string second = chat_template.render({{"messages", longer}, {"keep", keep}});
    EXPECT_EQ(first, "<user>Q<assistant>[R]A");
    EXPECT_EQ(second, keep ? "<user>Q<assistant>[R]A<user>Q2" : "<user>Q<assistant>A<user>Q2");
  }
}

TEST(ChatTemplate, RendersFromSeveralThreadsAlike) {
  const ChatTemplate chat_template = ChatTemplate::parse(
      "{% for x in l %}{{ x ~ 'const' | upper }}{{ {'a': x} | tojson }}{% endfor %}", "t");
  const Json variables = {{"l", {1, 2, 3, 4, 5, 6, 7, 8}}};
  const std::string expected = chat_template.render(variables);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) wrong += chat_template.render(variables) == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class TemplateFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "mererun_template_folder";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string rendered() { return load_chat_template(folder_).render_chat({{"user", "Hi", {}}}); }
  ErrorCode load_error() {
    try {
      load_chat_template(folder_);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  }

  std::filesystem::path folder_;
};

TEST_F(TemplateFolder, SeparateFileWins) {
  write("tokenizer_config.json",
        R"({"chat_template": "config", "bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  EXPECT_EQ(rendered(), "config");
  write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}{{ pad_token is defined }}");
  EXPECT_EQ(rendered(), "file <s></s>False");
}

TEST_F(TemplateFolder, NamedListGivesTheDefault) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(rendered(), "d");
}

TEST_F(TemplateFolder, MissingOrBrokenIsAnError) {
  EXPECT_EQ(load_error(), ErrorCode::kNotFound);
  write("tokenizer_config.json", R"({"bos_token": null})");
  EXPECT_EQ(load_error(), ErrorCode::kNotFound);
  for (const char* broken : {"{", "[]", R"({"chat_template": 5})", R"({"chat_template": [{"name": "x"}]})",
                             R"({"chat_template": [3]})", R"({"chat_template": "{% if %}"})"}) {
    write("tokenizer_config.json", broken);
    EXPECT_EQ(load_error(), ErrorCode::kCorruptData) << broken;
  }
}

}  // namespace
}  // namespace mererun
