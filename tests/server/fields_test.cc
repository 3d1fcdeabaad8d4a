#include "server/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api_error.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

template <typename Work>
std::string refusal(Work work) {
  try {
    work();
  } catch (const ApiError& error) {
    return std::to_string(error.status()) + " " + error.what();
  }
  return "accepted";
}

TEST(ParseBody, RefusesWhatIsNoJsonAndSaysWhere) {
  EXPECT_EQ(refusal([] { parse_body("{\"a\": }"); }), "400 body: expected JSON, got an error at byte 7");
  EXPECT_EQ(refusal([] { parse_body(std::string_view("{}\0 x", 5)); }),
            "400 body: expected JSON, got a NUL at byte 2");
  EXPECT_THAT(refusal([] { parse_body(""); }), HasSubstr("body: expected JSON"));
  EXPECT_THAT(refusal([] { parse_body("{\"a\": \"\xff\"}"); }), HasSubstr("body: expected JSON"));
  EXPECT_THAT(refusal([] { parse_body("{\"a\": 1e999}"); }), HasSubstr("body: expected JSON"));
  EXPECT_EQ(parse_body("{\"a\": [1, \"[{\"]}")["a"][1], "[{");
}

TEST(ParseBody, BoundsNestingAndMembers) {
  EXPECT_EQ(refusal([] { parse_body(std::string(128, '[') + std::string(128, ']')); }), "accepted");
  EXPECT_THAT(refusal([] { parse_body(std::string(129, '[') + std::string(129, ']')); }),
              HasSubstr("128 levels"));
  EXPECT_THAT(refusal([] { parse_body(std::string(10'000'000, '[')); }), HasSubstr("128 levels"));
  std::string many = "{";
  for (int i = 0; i < 20'000; ++i) many += "\"" + std::to_string(i) + "\":0,";
  many += "\"x\":0}";
  EXPECT_THAT(refusal([&] { parse_body(many); }), HasSubstr("fewer members"));
}

TEST(Fields, NamesFieldExpectedAndGot) {
  const Json body = {{"a", "x"}, {"b", 3}, {"c", nullptr}, {"d", {{"e", true}}}};
  Fields fields(body, "");
  EXPECT_EQ(refusal([&] { fields.number("a", {0, 2}); }), "400 a: expected a number from 0 to 2, got \"x\"");
  EXPECT_EQ(refusal([&] {
              fields.number("b", {0, 1, true});
            }),
            "400 b: expected a number above 0 and at most 1, got 3");
  EXPECT_EQ(refusal([&] { fields.integer("b", {4, 9}); }), "400 b: expected an integer from 4 to 9, got 3");
  EXPECT_EQ(refusal([&] { fields.text("b"); }), "400 b: expected a string, got 3");
  EXPECT_EQ(refusal([&] { fields.required_text("c"); }), "400 c: expected a string, got null");
  EXPECT_EQ(refusal([&] { fields.required_text("z"); }), "400 z: expected a string, got nothing");
  EXPECT_EQ(refusal([&] { fields.boolean("b"); }), "400 b: expected true or false, got 3");
  EXPECT_EQ(refusal([&] { fields.array("d"); }), "400 d: expected a list, got {\"e\":true}");
  EXPECT_EQ(refusal([&] { fields.choice("a", {"p", "q"}); }), "400 a: expected one of p, q, got \"x\"");
  Fields inner(body["d"], "d");
  EXPECT_EQ(refusal([&] { inner.integer("e", {0}); }),
            "400 d.e: expected an integer from 0 to 2147483647, got true");
  EXPECT_EQ(refusal([] { Fields(Json::array(), "m[1]"); }), "400 m[1]: expected an object, got []");
}

TEST(Fields, TakesWholeNumbersInAnySpelling) {
  const Json body = {{"a", 5.0}, {"b", 5.5}, {"c", 18446744073709551615u}, {"d", -3}};
  Fields fields(body, "");
  EXPECT_EQ(fields.integer("a", {0}), 5);
  EXPECT_THAT(refusal([&] { fields.integer("b", {0}); }), HasSubstr("b: expected an integer"));
  EXPECT_THAT(refusal([&] { fields.integer("c", {0}); }), HasSubstr("c: expected an integer"));
  EXPECT_EQ(fields.integer("d", {-5, 5}), -3);
}

TEST(Fields, KnowWhatNobodyAskedFor) {
  const Json body = {{"a", 1}, {"b", 2}, {"c", nullptr}};
  Fields fields(body, "");
  EXPECT_EQ(fields.integer("a", {0}), 1);
  EXPECT_EQ(fields.find("c"), nullptr);
  EXPECT_THAT(fields.unread(), ElementsAre("b"));
}

TEST(Excerpt, IsShortAscii) {
  EXPECT_EQ(excerpt(Json(std::string(100, 'a'))).size(), 60u);
  EXPECT_EQ(excerpt(Json("\x01é")), "\"\\u0001\\u00e9\"");
}

}  // namespace
}  // namespace mererun
