#include "engine/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/parsed_output.h"

namespace mererun::testing {
namespace {

std::string call_text(const std::string& name,
                      const std::vector<std::pair<std::string, std::string>>& values) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : values) text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

const std::string kParis = call_text("weather", {{"city", "Paris"}, {"days", "3"}});
const std::string kParisCall = R"(weather{"city":"Paris","days":3})";

// ---- reasoning ----

TEST(OutputParser, ReasoningEndsAtTheFirstClosingTag) {
  const ParsedOutput output = parse_whole("\nWrite.\n</think>\n\nHi </think> there\n", plain_reasoning());
  EXPECT_EQ(output.reasoning, "Write.");
  EXPECT_EQ(output.content, "Hi </think> there\n");
}

TEST(OutputParser, AnEmptyThinkBlockHasNoReasoning) {
  EXPECT_EQ(parse_whole("\n\n</think>\n\nHi", plain_reasoning()).transcript, "\nC:Hi\n#0");
}

TEST(OutputParser, OutputThatNeverClosesThinkingIsAllReasoning) {
  const ParsedOutput output = parse_whole("Let me see </think" + kParis, with_tools_and_reasoning());
  EXPECT_EQ(output.reasoning, "Let me see </think" + kParis);
  EXPECT_EQ(output.content, "");
  EXPECT_TRUE(output.calls.empty());
}

TEST(OutputParser, AWrittenOpeningTagIsSwallowed) {
  EXPECT_EQ(parse_whole("<think>\na\n\nb\n</think>c", plain_reasoning()).transcript, "\nR:a\n\nb\nC:c\n#0");
  EXPECT_EQ(parse_whole("\n<think>\na</think>\nc", plain()).transcript, "\nR:a\nC:c\n#0");
  EXPECT_EQ(parse_whole("<think>a<think>b", plain()).transcript, "\nR:a<think>b\n#0");
}

TEST(OutputParser, AnOpeningTagLaterIsText) {
  EXPECT_EQ(parse_whole("\n\nuse <think> here</think>", plain()).transcript,
            "\nC:\n\nuse <think> here</think>\n#0");
}

TEST(OutputParser, WordsBeforeTheEndOfThinkingSurviveACallInTheSameStep) {
  const ParsedOutput output = parse_whole("Write.</think>" + kParis, with_tools_and_reasoning());
  EXPECT_EQ(output.reasoning, "Write.");
  EXPECT_EQ(output.content, "");
  EXPECT_EQ(output.call(0), kParisCall);
}

// ---- calls ----

TEST(OutputParser, WithoutToolsACallIsText) {
  EXPECT_EQ(parse_whole("a\n" + kParis, plain()).content, "a\n" + kParis);
  OutputParserOptions empty = plain();
  empty.tools = std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::array());
  EXPECT_EQ(parse_whole(kParis, empty).content, kParis);
}

TEST(OutputParser, TextBeforeACallIsContentWithoutItsLastNewlines) {
  const ParsedOutput output = parse_whole("Sure. \n- one\n\n" + kParis + "\n", with_tools());
  EXPECT_EQ(output.content, "Sure. \n- one");
  EXPECT_EQ(output.call(0), kParisCall);
}

TEST(OutputParser, SeveralCallsAreIndexedInOrder) {
  const std::string rome = call_text("weather", {{"city", "Rome"}});
  for (const char* between : {"", "\n", " \n\n\t"}) {
    const ParsedOutput output = parse_whole(kParis + between + rome, with_tools());
    EXPECT_EQ(output.transcript, "\nT0:" + kParisCall + "\nT1:weather{\"city\":\"Rome\"}\n#2");
  }
}

TEST(OutputParser, TextAfterACallIsContent) {
  EXPECT_EQ(parse_whole("A" + kParis + "\n\nDone.\n", with_tools()).transcript,
            "\nC:A\nT0:" + kParisCall + "\nC:Done.\n\n#1");
}

TEST(OutputParser, ACallWithoutParametersHasAnEmptyObject) {
  EXPECT_EQ(parse_whole(call_text("now", {}), with_tools()).call(0), "now{}");
}

TEST(OutputParser, UnknownFunctionsAndKeysAreReported) {
  EXPECT_EQ(parse_whole(call_text("launch", {{"when", "42"}, {"é", "x"}}), with_tools()).call(0),
            R"(launch{"when":"42","é":"x"})");
}

TEST(OutputParser, TheKeyWrittenTwiceTakesTheLaterValue) {
  EXPECT_EQ(
      parse_whole(call_text("write", {{"path", "a"}, {"content", "b"}, {"path", "c"}}), with_tools()).call(0),
      R"(write{"path":"c","content":"b"})");
}

TEST(OutputParser, ACallComesOutWholeAtItsClosingTag) {
  OutputParser parser(with_tools());
  std::vector<OutputPiece> pieces;
  parser.feed(kParis.substr(0, kParis.size() - 1), pieces);
  EXPECT_TRUE(pieces.empty());
  parser.feed(">", pieces);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].arguments, R"({"city":"Paris","days":3})");
  EXPECT_EQ(parser.tool_calls(), 1);
}

// ---- values ----

TEST(OutputParser, ValuesAreOpaque) {
  const std::vector<std::string> values = {
      "a < b && c </ d",
      "\n\ntwo lines\n",
      "<tool_call>",
      "<tool_call>\n<function=x>",
      "<p></p></param> </parameter > <parameter=",
      "see </parameter> and </function> in text",
      "ends </tool_call> and goes on",
      "</tool_call>",
      "{\"a\": [1, \"</think>\"]}",
      "\"quoted\" \\ and \t tab, \xF0\x9F\x8C\x8D",
      "42",
      "null",
      "",
  };
  for (const std::string& value : values) {
    const ParsedOutput output =
        parse_whole(call_text("write", {{"content", value}, {"path", "p"}}), with_tools());
    ASSERT_EQ(output.calls.size(), 1U) << value;
    EXPECT_EQ(output.content, "");
    const auto arguments = nlohmann::json::parse(output.calls[0].arguments);
    EXPECT_EQ(arguments["content"].get<std::string>(), value);
    EXPECT_EQ(arguments["path"], "p");
  }
}

TEST(OutputParser, OneNewlineIsStrippedAtEachEndOfAValue) {
  EXPECT_EQ(
      parse_whole("<tool_call><function=write><parameter=path>x</parameter><parameter=content>\n\n y \n\n"
                  "</parameter></function></tool_call>",
                  with_tools())
          .call(0),
      R"(write{"path":"x","content":"\n y \n"})");
}

// ---- missing and repeated tags ----

TEST(OutputParser, RepeatedClosingTagsAreBridged) {
  EXPECT_EQ(
      parse_whole("<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</parameter>\n"
                  "<parameter=days>\n3\n</parameter></parameter>\n</function></function>\n</tool_call>\n"
                  "</tool_call>\n",
                  with_tools())
          .transcript,
      "\nT0:" + kParisCall + "\n#1");
}

TEST(OutputParser, MissingClosingTagsYieldWhatIsThere) {
  const std::string head = "<tool_call>\n<function=weather>\n<parameter=city>\nParis";
  const std::string days = "\n<parameter=days>\n3";
  for (const std::string& text : {
           head + days + "\n</parameter>\n</function>\n</tool_call>",
           head + "\n</parameter>" + days + "\n</function>\n</tool_call>",
           head + "\n</parameter>" + days + "\n</tool_call>",
           head + "\n</parameter>" + days + "\n</parameter>\n</tool_call>",
           head + "\n</parameter>" + days + "\n</parameter>\n</function>",
           head + "\n</parameter>" + days + "\n</parameter>\n",
           head + "\n</parameter>" + days + "\n</function>\n",
           head + "\n</parameter>" + days + "\n",
           head + "\n</parameter>" + days,
           head + "\n</parameter>" + days + "\n</parameter>\n</funct",
           head + "\n</parameter>" + days + "\n</parameter>\n</function>\n</tool_",
           head + "\n</parameter>" + days + "\n</parameter>\n<parameter=unfin",
       })
    EXPECT_EQ(parse_whole(text, with_tools()).transcript, "\nT0:" + kParisCall + "\n#1") << text;
}

TEST(OutputParser, ACallWithoutItsEndStopsAtTheNextCall) {
  const std::string open = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n";
  for (const std::string end :
       {"</parameter>\n", "</parameter>\n</function>\n", "</function>\n", "</tool_call>\n"}) {
    EXPECT_EQ(parse_whole(open + end + kParis, with_tools()).transcript,
              "\nT0:weather{\"city\":\"Paris\"}\nT1:" + kParisCall + "\n#2")
        << end;
  }
}

TEST(OutputParser, TwoFunctionsInOneCallAreTwoCalls) {
  EXPECT_EQ(parse_whole("<tool_call><function=a></function>\n<function=b><function=c></function></tool_call>",
                        with_tools())
                .transcript,
            "\nT0:a{}\nT1:b{}\nT2:c{}\n#3");
}

TEST(OutputParser, AForgottenAngleAfterANameOrKeyIsBridged) {
  EXPECT_EQ(
      parse_whole("<tool_call><function=weather\n<parameter=city\nParis</parameter></function></tool_call>",
                  with_tools())
          .call(0),
      R"(weather{"city":"Paris"})");
}

TEST(OutputParser, TextBetweenTagsOfACallBecomesContent) {
  EXPECT_EQ(parse_whole("<tool_call><function=weather> Now: <parameter=city>Paris</parameter></function>x"
                        "</tool_call>y",
                        with_tools())
                .transcript,
            "\nC:Now:\nT0:weather{\"city\":\"Paris\"}\nC:xy\n#1");
}

TEST(OutputParser, TheBudgetDropsAnOpenCallAndOnlyThat) {
  for (std::size_t size = 0; size <= kParis.size(); ++size) {
    const ParsedOutput output = parse_whole("Hi" + kParis.substr(0, size), with_tools(), true);
    if (size == kParis.size()) {
      EXPECT_EQ(output.call(0), kParisCall);
    } else {
      EXPECT_TRUE(output.calls.empty()) << size;
    }
    // Before its last letter the opening tag may still be text.
    EXPECT_EQ(output.content, size < 11 ? "Hi" + kParis.substr(0, size) : "Hi");
  }
}

// ---- malformed calls ----

TEST(OutputParser, AMalformedCallIsTextUnchanged) {
  for (const std::string text : {
           "Use \n<tool_call>\nblah\n</tool_call>\n\n",
           "<tool_call>",
           "<tool_call>\n\n",
           "<tool_call></tool_call>",
           "<tool_call>\n<function=>\n</function></tool_call>",
           "<tool_call>\n<function=a<b>c</tool_call>",
           "<tool_call>\n<function=half",
           "<tool_call>\n<func>",
           "<tool_call>\n<parameter=a>1</parameter></tool_call>",
           "<tool_call>{\"name\": 3}</tool_call>",
           "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>",
           "<tool_call>{\"name\": \"a\", \"arguments\": {]}</tool_call> x",
           "<tool_call>{\"name\": \"a\n\"}</tool_call> x",
           "<tool_call>{\"name\": \"a}</tool_call> x",
           "<tool_call>{\"name\": </tool_call> x",
           "<tool_call>{\"name\": \"a\", \"arguments\": {",
       })
    EXPECT_EQ(parse_whole(text, with_tools()).transcript, "\nC:" + text + "\n#0");
}

TEST(OutputParser, AMalformedCallHidesNoOther) {
  for (const std::string bad : {"<tool_call>", "<tool_call>\nno\n</tool_call>", "<tool_call>{\"a</tool_call>",
                                "<tool_call>{\"a</tool_call> b", "<tool_call><function=f<", "</tool_call>"}) {
    EXPECT_EQ(parse_whole(bad + kParis, with_tools()).transcript,
              "\nC:" + bad + "\nT0:" + kParisCall + "\n#1")
        << bad;
    EXPECT_EQ(parse_whole(kParis + "\nx" + bad, with_tools()).transcript,
              "\nT0:" + kParisCall + "\nC:x" + bad + "\n#1")
        << bad;
  }
}

// ---- JSON form ----

TEST(OutputParser, JsonCallsKeepTheirArguments) {
  EXPECT_EQ(
      parse_whole("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"days\": 3.0, \"city\": \"a \\\" } "
                  "<tool_call> b\", \"big\": 12345678901234567890123, \"o\": {\"z\": [1, 2], \"a\": null}}}\n"
                  "</tool_call>",
                  with_tools())
          .call(0),
      "weather{\"days\":3.0,\"city\":\"a \\\" } <tool_call> b\",\"big\":12345678901234567890123,"
      "\"o\":{\"z\":[1,2],\"a\":null}}");
  EXPECT_EQ(parse_whole(R"(<tool_call>{"name":"f"}</tool_call>)", with_tools()).call(0), "f{}");
  EXPECT_EQ(
      parse_whole(R"(<tool_call>{"arguments":"{\"a\": 1}","name":"f"}</tool_call>)", with_tools()).call(0),
      R"(f{"a":1})");
  EXPECT_EQ(parse_whole(R"(<tool_call>{"name":"f","parameters":{"a":1}}</tool_call>)", with_tools()).call(0),
            R"(f{"a":1})");
  EXPECT_EQ(parse_whole(R"(<tool_call><function=f>{"a": 1}</function></tool_call>)", with_tools()).transcript,
            "\nT0:f{\"a\":1}\n#1");
}

// ---- every chunking ----

std::vector<std::string> corpus() {
  const std::string rome = call_text("weather", {{"city", "Rome"}, {"days", "x < 3\n</ "}});
  return {
      "\nWrite.\n\n</think>\n\nAnswer\n\n",
      "<think>\nWrite.</think>" + kParis,
      "Sure.\n\n" + kParis + "\n" + rome + "\n",
      "é\n<tool" + kParis + "tail </tool_call>\n\xF0\x9F\x8C\x8D",
      "a\n<tool_call>\nno</tool_call>\n" + rome,
      "<tool_call><function=write><parameter=content>x</tool_call> y</parameter> "
      "</param</parameter>\n</parameter>"
      "</function> z </function></tool_call></tool_call>\n <",
      "<tool_call><function=write><parameter=content>x</tool_call> y " + kParis,
      "<tool_call><function=f><parameter=a>1<parameter=b<parameter=c>2</function></tool_call> q",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\\\\\"</tool_call>\"}} </tool_call>\nz",
      "<tool_call>{\"a</tool_call> b\n</tool_call>" + kParis,
      "<tool_call> {\"a\": <</tool_call><tool_call",
      "\r\n\n<thin",
      "<<<tool_call><<tool_call><function=f>{\"a\": [1]}<function=g> j </parameter></tool_call>",
  };
}

TEST(OutputParser, EveryChunkingGivesTheSamePieces) {
  std::mt19937 random(7);
  for (const OutputParserOptions& options :
       {plain(), plain_reasoning(), with_tools(), with_tools_and_reasoning()}) {
    for (const bool drops : {false, true}) {
      for (const std::string& text : corpus()) {
        const std::string whole = parse_whole(text, options, drops).transcript;
        std::vector<std::size_t> each_byte;
        for (std::size_t cut = 0; cut <= text.size(); ++cut) {
          each_byte.push_back(cut);
          ASSERT_EQ(parse_cut(text, options, {cut}, drops).transcript, whole) << "cut at " << cut;
        }
        ASSERT_EQ(parse_cut(text, options, each_byte, drops).transcript, whole) << "byte by byte";
        for (int round = 0; round < 50; ++round) {
          std::vector<std::size_t> cuts;
          for (std::size_t cut = random() % 8; cut < text.size(); cut += random() % 9) cuts.push_back(cut);
          ASSERT_EQ(parse_cut(text, options, cuts, drops).transcript, whole) << "random " << round;
        }
      }
    }
  }
}

TEST(OutputParser, NoTextIsLost) {
  // Without the tags and white space, what comes out is what went in.
  const auto letters = [](std::string text) {
    for (const std::string tag : {"<think>", "</think>", "<tool_call>", "</tool_call>",
                                  "<function=", "</function>", "<parameter=", "</parameter>"})
      for (std::size_t at = 0; (at = text.find(tag, at)) != std::string::npos;) text.erase(at, tag.size());
    std::erase_if(
        text, [](char c) { return std::string_view(" \n\r\t>\"\\{}:,").find(c) != std::string_view::npos; });
    std::sort(text.begin(), text.end());
    return text;
  };
  const std::vector<std::string> parts = {
      "<tool_call>",  "</tool_call>", "<function=", "</function>", "<parameter=",
      "</parameter>", "</think>",     ">",          "\n",          "a"};
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    char letter = 'b';
    for (int i = 0; i < 14; ++i) {
      text += parts[random() % parts.size()];
      // Each word is its own, so that no key repeats.
      if (random() % 2 == 0) text += std::string("w") + letter++;
    }
    const ParsedOutput output = parse_whole(text, with_tools());
    std::string all = output.content;
    for (const OutputPiece& call : output.calls) {
      const auto arguments = nlohmann::ordered_json::parse(call.arguments);
      all += call.name;
      for (const auto& item : arguments.items()) all += item.key() + item.value().get<std::string>();
    }
    if (output.calls.empty()) {
      ASSERT_EQ(letters(output.content), letters(text)) << text;
    }
    for (char c = 'b'; c < letter; ++c)
      ASSERT_NE(all.find(std::string("w") + c), std::string::npos) << text << " lost w" << c;
  }
}

// ---- cost: quadratic work on texts of this size takes longer than CTest lets a program run ----

TEST(OutputParser, HostileTextTakesLinearTime) {
  const std::string opened = "<tool_call><function=write><parameter=content>";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "<"},
      {"", "<tool_call>"},
      {"", "<tool_call>{"},
      {"", "<tool_call>{\"</tool_call>"},
      {"", "<tool_call><function=f>"},
      {"", "<tool_call><function=f><parameter=a>"},
      {"", "<tool_call><function=f><parameter=a></tool_call>"},
      {"", "\n"},
      {opened, "<parameter="},
      {opened, "<parameter=a>"},
      {opened, "</parameter>"},
      {opened, "</parameter>x"},
      {opened, "</tool_call>"},
      {opened, "</tool_call>x"},
      {opened + "</parameter>", " "},
      {"<tool_call><function=f>", "<parameter="},
      {"<tool_call>{\"name\":\"f\",\"arguments\":", "["},
      {"<tool_call>{\"name\":\"", "<tool_call>"},
  };
  for (const auto& [start, unit] : cases) {
    std::string text = start;
    while (text.size() < (1U << 20U)) text += unit;
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 3; cut < text.size(); cut += 3) cuts.push_back(cut);
    parse_cut(text, with_tools(), cuts);
  }
}

TEST(OutputParser, ManyKeysTakeLinearTime) {
  std::string text = "<tool_call><function=write>", json = "<tool_call>{\"name\":\"f\",\"arguments\":{";
  for (int i = 0; i < 600'000; ++i) {
    text += "<parameter=k" + std::to_string(i) + ">v</parameter>";
    json += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  }
  EXPECT_EQ(parse_whole(text + "</function></tool_call>", with_tools()).calls.size(), 1U);
  EXPECT_EQ(parse_whole(json + "}}</tool_call>", with_tools()).calls.size(), 1U);
}

}  // namespace
}  // namespace mererun::testing
