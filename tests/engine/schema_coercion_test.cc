#include "engine/schema_coercion.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/json_text.h"
#include "tests/engine/parsed_output.h"

namespace mererun::testing {
namespace {

TEST(SchemaCoercion, TheTypesAreTriedFromTheNarrowest) {
  const ToolSchemas schemas(with_tools().tools);
  struct Row {
    const char *key, *text, *json;
  };
  const Row rows[] = {
      {"string", "42", R"("42")"},
      {"string", "null", R"("null")"},
      {"string", "", R"("")"},
      {"string", " true ", R"(" true ")"},
      {"string", "{\"a\": 1}", R"("{\"a\": 1}")"},
      {"integer", "42", "42"},
      {"integer", " -7 ", "-7"},
      {"integer", "+007", "7"},
      {"integer", "5.0", "5"},
      {"integer", "-0", "0"},
      {"integer", "5.5", R"("5.5")"},
      {"integer", "1e3", R"("1e3")"},
      {"integer", "", R"("")"},
      {"integer", "null", "null"},
      {"integer", "ten", R"("ten")"},
      {"integer", "123456789012345678901234567890", "123456789012345678901234567890"},
      {"int64", "8", "8"},
      {"number", "3", "3"},
      {"number", "-.5", "-0.5"},
      {"number", "5.", "5"},
      {"number", "1.50", "1.50"},
      {"number", "6E+2", "6E+2"},
      {"number", "1e999", R"("1e999")"},
      {"number", "nan", R"("nan")"},
      {"number", "0x10", R"("0x10")"},
      {"number", "-", R"("-")"},
      {"number", "1e", R"("1e")"},
      {"boolean", "True", "true"},
      {"boolean", "FALSE", "false"},
      {"boolean", "yes", R"("yes")"},
      {"boolean", "", R"("")"},
      {"boolean", "None", "null"},
      {"object", "{ \"b\": 1.0, \"a\": [ ] }", R"({"b":1.0,"a":[]})"},
      {"object", "[1]", R"("[1]")"},
      {"object", "{oops}", R"("{oops}")"},
      {"array", "[1, \"x y\", {\"k\": null}]", R"([1,"x y",{"k":null}])"},
      {"array", "[1,", R"("[1,")"},
      {"array", "", R"("")"},
      {"null", "null", "null"},
      {"null", "", "null"},
      {"free", "42", R"("42")"},
      {"free", "null", "null"},
      {"unknown", "true", R"("true")"},
      {"loop", "1", R"("1")"},
      {"optional", "5", "5"},
      {"optional", "null", "null"},
      {"optional", "None", "null"},
      {"optional", "", "null"},
      {"optional_string", "null", "null"},
      {"optional_string", "", R"("")"},
      {"optional_string", "5", R"("5")"},
      {"union", "5", "5"},
      {"union", "True", "true"},
      {"union", "null", R"("null")"},
      {"union", "five", R"("five")"},
      {"one_of", "[1, 2]", "[1,2]"},
      {"one_of", "2.5", "2.5"},
      {"level", "low", R"("low")"},
      {"level", "null", R"("null")"},
      {"digits", "1", R"("1")"},
      {"digits", "2", "2"},
      {"nullable", "null", "null"},
      {"nullable", "", "null"},
      {"shape", "{\"w\": 1}", R"({"w":1})"},
      {"items", "[1, 2]", "[1,2]"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(schemas.argument_json("typed", row.key, row.text), row.json) << row.key << " " << row.text;
}

TEST(SchemaCoercion, ToolsOfEveryShapeAreFound) {
  const ToolSchemas schemas(with_tools().tools);
  EXPECT_EQ(schemas.argument_json("weather", "days", "3"), "3");
  EXPECT_EQ(schemas.argument_json("write", "path", "null"), R"("null")");
  EXPECT_EQ(schemas.argument_json("nobody", "days", "3"), R"("3")");
  EXPECT_EQ(ToolSchemas(nullptr).argument_json("weather", "days", "3"), R"("3")");
}

TEST(SchemaCoercion, DeepNestingStaysText) {
  const ToolSchemas schemas(with_tools().tools);
  const auto nest = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(schemas.argument_json("typed", "array", nest(256)), nest(256));
  EXPECT_EQ(schemas.argument_json("typed", "array", nest(257)), '"' + nest(257) + '"');
  EXPECT_EQ(schemas.argument_json("typed", "array", nest(300000)), '"' + nest(300000) + '"');
}

TEST(JsonText, QuotingNeverThrows) {
  EXPECT_EQ(quote_json("a\"\\\n\x01\xC3\xA9"), "\"a\\\"\\\\\\n\\u0001\xC3\xA9\"");
  EXPECT_EQ(quote_json("\xF0\x9F"), "\"\xEF\xBF\xBD\"");
}

TEST(JsonText, CompactingKeepsSpellings) {
  EXPECT_EQ(compact_json(" { \"a b\" : [ 1.0 , -0 , \"\\u00e9 \\\" \" ] , \"a b\" : { } } "),
            "{\"a b\":[1.0,-0,\"\\u00e9 \\\" \"],\"a b\":{}}");
  EXPECT_EQ(compact_json("{} x"), std::nullopt);
  EXPECT_EQ(compact_json(""), std::nullopt);
  EXPECT_EQ(compact_json(std::string_view("{}\0}", 4)), std::nullopt);
  EXPECT_EQ(compact_json(std::string_view("{}\0", 3)), std::nullopt);
  const std::vector<JsonMember> members = members_of_compact_object(R"({"x":"}","y\n":[{"a":1},2],"x":3})");
  ASSERT_EQ(members.size(), 3U);
  EXPECT_EQ(members[0].value, "\"}\"");
  EXPECT_EQ(members[1].key, "y\n");
  EXPECT_EQ(members[1].value, R"([{"a":1},2])");
  EXPECT_EQ(members[2].value, "3");
}

}  // namespace
}  // namespace mererun::testing
