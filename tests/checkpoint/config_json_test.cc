#include "checkpoint/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/checkpoint/test_files.h"

namespace mererun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kWhere = "config.json: text_config";

Json parse(std::string_view text) { return parse_json_object(text, "config.json"); }

std::string message(const std::function<void()>& action) {
  const Error error = error_of(action);
  EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
  return error.what();
}

TEST(ConfigJson, BuildsTheSameTreeAsTheLibrary) {
  const std::string_view text =
      R"({"a":[1,-2,3.5,true,null,"x\u00e9",{"b":{}},[]],"c":{"d":{"e":[[[0]]]}},"f":18446744073709551615})";
  EXPECT_EQ(parse(text), Json::parse(text));
}

TEST(ConfigJson, RefusesRepeatedKeysAtEveryLevel) {
  for (const char* text :
       {R"({"a":1,"a":1})", R"({"x":{"a":1,"b":2,"a":3}})", R"({"x":[{"a":{},"a":{}}]})"}) {
    EXPECT_EQ(message([&] { parse(text); }),
              R"(config.json: expected distinct keys, got "a" twice in one object)");
  }
  EXPECT_NO_THROW(parse(R"({"a":{"a":{"a":[{"a":1},{"a":2}]}}})"));
}

TEST(ConfigJson, RefusesDeepAndLongTexts) {
  const auto nested = [](int depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_NO_THROW(parse(nested(64)));
  EXPECT_THAT(message([&] { parse(nested(65)); }), HasSubstr("expected at most 64 levels of nesting"));
  EXPECT_THAT(message([&] { parse(R"({"a":)" + std::string(1 << 20, '[')); }),
              HasSubstr("levels of nesting"));
  EXPECT_THAT(message([&] { parse_json_object("{}   ", "x", {.max_bytes = 4}); }),
              HasSubstr("x: expected at most 4 bytes, got 5"));
}

TEST(ConfigJson, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", " ", "{", R"({"a":})", R"({"a":1,})", "{} {}", R"({"a":NaN})",
                           R"({"a":1e999})", "{\"a\":\"\xff\"}", "\xff\xfe{\0}", "// no\n{}"}) {
    EXPECT_THAT(message([&] { parse(text); }), StartsWith("config.json: expected JSON, got ")) << text;
  }
  using namespace std::string_view_literals;
  EXPECT_EQ(message([&] { parse("{}\0 and more"sv); }), "config.json: expected JSON, got a NUL at byte 2");
  EXPECT_EQ(message([&] { parse("[1,2]"); }), "config.json: expected an object, got a list of 2");
  EXPECT_EQ(message([&] { parse("null"); }), "config.json: expected an object, got null");
}

TEST(ConfigJson, SaysWhereTheTextIsBroken) {
  EXPECT_THAT(message([] { parse("{\n  \"a\": 1,\n  oops\n}"); }), HasSubstr("line 3, column 3"));
}

TEST(ConfigJson, EveryTruncationIsAnErrorNotACrash) {
  const std::string text = R"({"a":[1,-2.5e3,true],"b":{"c":"\u00e9\n"},"d":null})";
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::vector<char> exact(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(error_of([&] {
                parse({exact.data(), exact.size()});
              }).code(),
              ErrorCode::kCorruptData)
        << length;
  }
}

TEST(ConfigJson, ReadsFilesAndNamesThem) {
  const testing::TempFolder folder;
  folder.write("config.json", R"({"a":1})");
  folder.write("bad.json", "{");
  folder.write("empty.json", "");
  EXPECT_EQ(read_json_file(folder / "config.json")["a"], 1);
  EXPECT_EQ(error_of([&] { read_json_file(folder / "none.json"); }).code(), ErrorCode::kNotFound);
  EXPECT_THAT(message([&] { read_json_file(folder / "bad.json"); }), HasSubstr("bad.json: expected JSON"));
  EXPECT_THAT(message([&] { read_json_file(folder / "empty.json"); }),
              HasSubstr("empty.json: expected JSON"));
  EXPECT_EQ(read_optional_json_file(folder / "none.json"), std::nullopt);
  EXPECT_TRUE(read_optional_json_file(folder / "config.json").has_value());
  std::filesystem::create_symlink("gone", folder / "broken.json");
  EXPECT_EQ(error_of([&] { read_optional_json_file(folder / "broken.json"); }).code(), ErrorCode::kNotFound);
}

TEST(ConfigJson, IntegersAreCheckedForTypeAndRange) {
  const Json json = parse(
      R"({"n":5,"low":-1,"big":18446744073709551615,"fraction":5.0,"text":"5","none":null,"yes":true,"list":[1]})");
  EXPECT_EQ(require_int(json, "n", 5, 5, kWhere), 5);
  EXPECT_EQ(optional_int(json, "low", -1, 1, kWhere), -1);
  EXPECT_EQ(optional_int(json, "absent", 0, 1, kWhere), std::nullopt);
  EXPECT_EQ(optional_int(json, "none", 0, 1, kWhere), std::nullopt);
  const std::pair<const char*, const char*> bad[] = {
      {"low", "-1"},   {"big", "18446744073709551615"}, {"fraction", "5.0"},   {"text", "\"5\""},
      {"yes", "true"}, {"list", "a list of 1"},         {"absent", "nothing"}, {"none", "nothing"}};
  for (const auto& [key, got] : bad) {
    EXPECT_EQ(
        message([&, k = key] { require_int(json, k, 1, 8, kWhere); }),
        std::string("config.json: text_config.") + key + ": expected an integer from 1 to 8, got " + got);
  }
  EXPECT_THAT(message([&] { require_int(json, "n", 6, 9, "config.json"); }),
              StartsWith("config.json: n: expected"));
  EXPECT_THAT(message([&] { optional_int(json, "big", INT64_MIN, INT64_MAX, kWhere); }),
              HasSubstr("got 1844"));
}

TEST(ConfigJson, NumbersAreCheckedForTypeAndRange) {
  const Json json = parse(R"({"eps":1e-06,"theta":10000000,"text":"1"})");
  EXPECT_EQ(require_number(json, "eps", {0, 1}, kWhere), 1e-6);
  EXPECT_EQ(optional_number(json, "theta", {1, 1e12}, kWhere), 1e7);
  EXPECT_EQ(optional_number(json, "absent", {0, 1}, kWhere), std::nullopt);
  EXPECT_THAT(message([&] {
                require_number(json, "theta", {0, 1}, kWhere);
              }),
              AllOf(HasSubstr("theta: expected a number from 0 to 1"), HasSubstr("got 10000000")));
  EXPECT_THAT(message([&] { optional_number(json, "text", {0, 1}, kWhere); }), HasSubstr("got \"1\""));
  EXPECT_THAT(message([&] { require_number(json, "absent", {0, 1}, kWhere); }), HasSubstr("got nothing"));
}

TEST(ConfigJson, OtherTypesAreChecked) {
  const Json json = parse(
      R"({"b":true,"s":"x","o":{"k":1},"ss":["a","b"],"is":[3,1],"i":7,"mixed":["a",1],"half":[1,2.5]})");
  EXPECT_EQ(optional_bool(json, "b", kWhere), true);
  EXPECT_EQ(optional_bool(json, "absent", kWhere), std::nullopt);
  EXPECT_THAT(message([&] { optional_bool(json, "i", kWhere); }),
              HasSubstr("i: expected true or false, got 7"));
  EXPECT_EQ(require_string(json, "s", kWhere), "x");
  EXPECT_EQ(optional_string(json, "absent", kWhere), std::nullopt);
  EXPECT_THAT(message([&] { require_string(json, "b", kWhere); }), HasSubstr("b: expected a text, got true"));
  EXPECT_EQ(require_object(json, "o", kWhere)["k"], 1);
  EXPECT_EQ(optional_object(json, "absent", kWhere), nullptr);
  EXPECT_THAT(message([&] { optional_object(json, "ss", kWhere); }),
              HasSubstr("expected an object, got a list of 2"));
  EXPECT_THAT(message([&] { require_object(json, "absent", kWhere); }),
              HasSubstr("expected an object, got nothing"));
  EXPECT_THAT(*optional_strings(json, "ss", kWhere), ElementsAre("a", "b"));
  EXPECT_THAT(message([&] { optional_strings(json, "mixed", kWhere); }),
              HasSubstr("mixed[1]: expected a text, got 1"));
  EXPECT_THAT(*optional_ints(json, "is", 0, 9, kWhere), ElementsAre(3, 1));
  EXPECT_THAT(*optional_ints(json, "i", 0, 9, kWhere), ElementsAre(7));
  EXPECT_THAT(message([&] { optional_ints(json, "half", 0, 9, kWhere); }),
              HasSubstr("half[1]: expected an integer"));
}

TEST(ConfigJson, MembersOfWhatIsNoObjectAreAbsent) {
  EXPECT_EQ(find_member(Json(3), "a"), nullptr);
  EXPECT_EQ(find_member(Json::array({1}), "a"), nullptr);
}

TEST(ConfigJson, FindsTheQuantizationDictionary) {
  const auto bits = [](const char* text) -> int {
    const Json config = parse(text);
    const Json* found = find_quantization(config, "config.json");
    return found == nullptr ? 0 : found->at("bits").get<int>();
  };
  EXPECT_EQ(bits("{}"), 0);
  EXPECT_EQ(bits(R"({"quantization":{"bits":4}})"), 4);
  EXPECT_EQ(bits(R"({"quantization_config":{"bits":6}})"), 6);
  EXPECT_EQ(bits(R"({"quantization":{"bits":4},"quantization_config":{"bits":4}})"), 4);
  EXPECT_EQ(bits(R"({"quantization_config":{"bits":8,"quant_method":"fp8"}})"), 0);
  EXPECT_EQ(bits(R"({"quantization":{"bits":4},"quantization_config":{"bits":8,"quant_method":"fp8"}})"), 4);
  EXPECT_THAT(message([&] { bits(R"({"quantization":{"bits":4},"quantization_config":{"bits":5}})"); }),
              HasSubstr("two that differ"));
  EXPECT_THAT(message([&] { bits(R"({"quantization":4})"); }),
              HasSubstr("quantization: expected an object, got 4"));
}

}  // namespace
}  // namespace mererun
