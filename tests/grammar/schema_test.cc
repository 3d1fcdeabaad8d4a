#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "grammar/compile.h"
#include "tests/grammar/text_probe.h"

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

std::unique_ptr<TokenConstraint> schema(const std::string& text) {
  return compile_json_schema(Json::parse(text), byte_vocabulary());
}

std::string error_of(const std::string& text) {
  return refusal_of([&] { return schema(text); });
}

struct Case {
  const char* schema;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

void check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const auto constraint = schema(one.schema);
    for (const std::string& text : one.yes)
      EXPECT_TRUE(accepts(*constraint, text)) << one.schema << "\n" << text;
    for (const std::string& text : one.no)
      EXPECT_FALSE(accepts(*constraint, text)) << one.schema << "\n" << text;
  }
}

TEST(JsonSchema, Types) {
  check({
      {R"({"type": "null"})", {"null"}, {"", "0", "nul", "null "}},
      {R"({"type": "boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"type": "integer"})",
       {"0", "-1", "42", "123456789012345678"},
       {"-0", "01", "1.0", "1e3", "1234567890123456789"}},
      {R"({"type": "number"})",
       {"0", "-0.5", "1e9", "1.25E-10", "7"},
       {".5", "1.", "+1", "1e", "1e100", "00"}},
      {R"({"type": ["integer", "null"]})", {"3", "null"}, {"\"3\""}},
      {R"({"type": "integer", "nullable": true})", {"3", "null"}, {"1.5"}},
      {R"(true)", {"1", "[]", "{\"a\": [null, {}]}", "\"x\""}, {"", "{a:1}"}},
      {R"({"type": "object"})",
       {"{}", "{\"a\":1}", "{\n  \"a\": {},\n  \"b\": []\n}"},
       {"[]", "{\"a\"}", "{,}", "{\"a\":1,}"}},
      {R"({"type": "array"})",
       {"[]", "[1, \"a\", [], {\"x\": null}]", "[\n\t1\n]"},
       {"[1 2]", "[,]", "[1,]"}},
  });
}

TEST(JsonSchema, Strings) {
  check({
      {R"({"type": "string"})",
       {"\"\"", "\"a\\n\\u00e9\\ud83d\\ude00 東 \\\"\\/\"", "\"\x7f\""},
       {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83dx\"", "\"a", "a"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {"\"ab\"", "\"abc\"", "\"😀é\"", "\"\\n\\ud83d\\ude00\""},
       {"\"a\"", "\"abcd\"", "\"\\u0041\""}},
      {R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""}},
      {R"({"type": "string", "pattern": "^[a-c]+\\d?$"})",
       {"\"abc\"", "\"a1\""},
       {"\"\"", "\"a12\"", "\"d\"", "\"xa\""}},
      {R"({"type": "string", "pattern": "b.d"})", {"\"bad\"", "\"xx b\\\"d yy\""}, {"\"bd\"", "\"b\\nd\""}},
      {R"({"type": "string", "pattern": "^[^a]$"})",
       {"\"b\"", "\"\\n\"", "\"\\\"\"", "\"\\u0001\"", "\"東\""},
       {"\"a\"", "\"\\u0062\"", "\"bb\""}},
      {R"({"type": "string", "pattern": "^(ab|c)*$", "minLength": 3, "maxLength": 4})",
       {"\"abc\"", "\"cab\"", "\"abab\"", "\"cccc\""},
       {"\"ab\"", "\"ababc\"", "\"aba\""}},
      {R"({"type": "string", "pattern": "^[a-z0-9_]+$", "maxLength": 40})",
       {"\"a\"", "\"abcdefghijabcdefghijabcdefghijabcdefghij\""},
       {"\"\"", "\"abcdefghijabcdefghijabcdefghijabcdefghijk\""}},
      {R"({"type": "string", "pattern": "^a$|^b$|c"})", {"\"a\"", "\"b\"", "\"xcx\""}, {"\"ab\"", "\"x\""}},
      {R"({"minLength": 1})", {"\"a\""}, {"\"\"", "1"}},
  });
}

TEST(JsonSchema, Formats) {
  check({
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\"", "\"2023-04-30\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"2023-1-1\""}},
      {R"({"type": "string", "format": "time"})",
       {"\"23:59:59Z\"", "\"00:00:00.25+01:30\""},
       {"\"24:00:00Z\"", "\"12:00Z\"", "\"12:00:00\""}},
      {R"({"type": "string", "format": "date-time"})",
       {"\"2024-02-29T01:02:03Z\""},
       {"\"2024-02-29 01:02:03Z\""}},
      {R"({"type": "string", "format": "uuid"})",
       {"\"12345678-90ab-CDEF-1234-567890abcdef\""},
       {"\"1234567-90ab-CDEF-1234-567890abcdef\""}},
      {R"({"type": "string", "format": "email"})",
       {"\"a.b@example.org\""},
       {"\"a@b\"", "\"a..b@c.de\"", "\"@c.de\""}},
      {R"({"type": "string", "format": "ipv4"})", {"\"255.0.10.199\""}, {"\"256.0.0.1\"", "\"01.2.3.4\""}},
      {R"({"type": "string", "format": "ipv6"})",
       {"\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\""},
       {"\"1:2\"", "\":1\""}},
      {R"({"type": "string", "format": "duration"})",
       {"\"P1DT2H\"", "\"PT5M\"", "\"P3W\"", "\"P1Y2M3D\""},
       {"\"P\"", "\"PT\"", "\"1D\""}},
      {R"({"type": "string", "format": "hostname"})", {"\"a-b.example\""}, {"\"-a\"", "\"a.\""}},
      {R"({"type": "string", "format": "uri"})", {"\"https://example.org/a/b?c=d#e\""}, {"\"example.org\""}},
      {R"({"type": "integer", "format": "int32"})",
       {"2147483647", "-2147483648"},
       {"2147483648", "-2147483649"}},
  });
}

TEST(JsonSchema, NumbersWithinBounds) {
  check({
      {R"({"type": "integer", "minimum": -12, "maximum": 105})",
       {"-12", "-1", "0", "9", "99", "105"},
       {"-13", "-0", "106", "1000", "5.0"}},
      {R"({"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 9})", {"8"}, {"7", "9"}},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type": "integer", "maximum": -100})", {"-100", "-999999999999999999"}, {"-99", "0", "1"}},
      {R"({"type": "integer", "minimum": 9223372036854775807})",
       {"9223372036854775807", "9223372036854775808"},
       {"9223372036854775806"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "1.0", "0.999999"},
       {"1.01", "-0.1", "2", "1e0"}},
      {R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "5", "10.25"}, {"0", "0.0", "-1"}},
      {R"({"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 2.25})",
       {"-1.49", "2.249", "0", "2"},
       {"-1.5", "-1.50", "2.25", "2.3", "-0.0"}},
      {R"({"type": "number", "minimum": 1e-3, "maximum": 1e3})",
       {"0.001", "1000", "999.5"},
       {"0.0009", "1000.1"}},
      {R"({"type": "number", "minimum": -3.5, "maximum": -1})",
       {"-3.5", "-2", "-1", "-1.0"},
       {"-0.5", "-3.6", "1"}},
  });
}

TEST(JsonSchema, Objects) {
  check({
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a"]})",
       {"{\"a\":1}", "{\"a\": 1, \"b\": null}", "{\n  \"a\": 1,\n  \"b\": null\n}", "{ \"a\": 1 }"},
       {"{}", "{\"b\":null}", "{\"b\":null,\"a\":1}", "{\"a\":1,\"c\":2}", "{\"a\":1,}"}},
      {R"({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}})",
       {"{}", "{\"a\":1}", "{\"b\":1}", "{\"c\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}",
        "{\"a\":1,\"b\":2,\"c\":3}"},
       {"{\"c\":1,\"a\":1}", "[]"}},
      {R"({"type": "object", "properties": {"ab": {"const": 1}}, "additionalProperties": {"type": "string"}})",
       {"{\"ab\":1,\"abc\":\"x\"}", "{\"a\":\"x\",\"\":\"y\"}", "{\"b\\n\":\"\"}", "{}"},
       {"{\"ab\":\"x\"}", "{\"a\":1}", "{\"\\u0061b\":\"x\"}", "{\"ab\":1,\"ab\":\"x\"}"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {"{\"a\":1}"}},
      {R"({"type": "object", "required": ["é\"x"]})",
       {"{\"é\\\"x\": 5}", "{\"é\\\"x\":5,\"y\":6}"},
       {"{}", "{\"y\":6}"}},
      {R"({"type": "object", "properties": {"a": false, "b": true}})", {"{}", "{\"b\":1}"}, {"{\"a\":1}"}},
  });
}

TEST(JsonSchema, Arrays) {
  check({
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
       {"[]", "[1,2,3,4]", "[\"a\"]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}, "minItems": 1})",
       {"[1]", "[1,null]", "[1,null,true,false]"},
       {"[]", "[null]", "[1,2]", "[1,null,3]"}},
      {R"({"prefixItems": [{"const": 1}, {"const": 2}], "items": false, "maxItems": 1})",
       {"[]", "[1]"},
       {"[1,2]"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 200, "maxItems": 201})",
       {},
       {"[]", "[1]"}},
      {R"({"items": {"type": "array", "maxItems": 0}})", {"[[], []]"}, {"[[1]]"}},
  });
  std::string two_hundred = "[0";
  for (int i = 1; i < 200; ++i) two_hundred += ",0";
  const auto counted = schema(R"({"items": {"type": "integer"}, "minItems": 200, "maxItems": 201})");
  EXPECT_TRUE(accepts(*counted, two_hundred + "]"));
  EXPECT_TRUE(accepts(*counted, two_hundred + ",1]"));
  EXPECT_FALSE(accepts(*counted, two_hundred + ",1,1]"));
}

TEST(JsonSchema, ValuesAndCombinations) {
  check({
      {R"({"enum": ["a\"b", 1, null, {"x": [1, 2]}]})",
       {"\"a\\\"b\"", "1", "null", "{\"x\":[1,2]}"},
       {"\"a\"", "2", "{}"}},
      {R"({"enum": [1, "1", "abc", "abcd", 7.5], "type": "string", "maxLength": 3})",
       {"\"1\"", "\"abc\""},
       {"1", "\"abcd\""}},
      {R"({"enum": [1, 5, 9], "minimum": 2, "exclusiveMaximum": 9})", {"5"}, {"1", "9"}},
      {R"({"enum": ["ab", "b"], "pattern": "^a"})", {"\"ab\""}, {"\"b\""}},
      {R"({"enum": [{"a": 1}, {"a": "x"}, {}], "properties": {"a": {"type": "integer"}}, "required": ["a"]})",
       {"{\"a\":1}"},
       {"{}", "{\"a\":\"x\"}"}},
      {R"({"anyOf": [{"type": "integer", "maximum": 3}, {"type": "string", "maxLength": 1}]})",
       {"3", "-8", "\"x\""},
       {"4", "\"xy\""}},
      {R"({"oneOf": [{"const": "a"}, {"type": "null"}]})", {"\"a\"", "null"}, {"\"b\""}},
      {R"({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": -5}], "maximum": 7})",
       {"5", "7", "-5"},
       {"8", "0"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}, "a": {"minimum": 3}}}]})",
       {"{\"a\":3}", "{\"a\":4,\"b\":null}"},
       {"{\"a\":2}", "{}"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": true}, "additionalProperties": false}, {"properties": {"b": true}}]})",
       {"{}", "{\"a\":1}"},
       {"{\"b\":1}"}},
      {R"({"anyOf": [{"type": "object", "properties": {"k": {"const": "x"}, "n": {"type": "integer"}}, "required": ["k", "n"]},
                     {"type": "object", "properties": {"k": {"const": "xy"}, "s": {"type": "string"}}, "required": ["k", "s"]}]})",
       {"{\"k\":\"x\",\"n\":1}", "{\"k\":\"xy\",\"s\":\"\"}"},
       {"{\"k\":\"x\",\"s\":\"\"}", "{\"k\":\"xy\",\"n\":1}"}},
  });
}

TEST(JsonSchema, References) {
  check({
      {R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
           "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}})",
       {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
       {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
      {R"({"items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"$ref": "#/definitions/a~1b~0c", "definitions": {"a/b~c": {"type": "null"}}})", {"null"}, {"1"}},
      {R"({"$ref": "#/$defs/n", "minimum": 4, "$defs": {"n": {"type": "integer", "maximum": 6}}})",
       {"4", "6"},
       {"3", "7"}},
  });
}

TEST(JsonSchema, DeepValues) {
  const auto any = schema("true");
  const std::string open(5000, '['), close(5000, ']');
  EXPECT_TRUE(accepts(*any, open + "1" + close));
  EXPECT_FALSE(accepts(*any, open + "1" + close + "]"));
}

TEST(JsonSchema, ErrorsNamePointerAndKeyword) {
  const auto names = [](const std::string& text, const std::string& part) {
    const std::string error = error_of(text);
    EXPECT_NE(error.find(part), std::string::npos) << text << "\n" << error;
  };
  names(R"({"properties": {"a": {"patternProperties": {}}}})", "#/properties/a/patternProperties");
  names(R"({"items": {"multipleOf": 2}})", "#/items/multipleOf");
  names(R"({"not": {}})", "#/not");
  names(R"({"type": "array", "uniqueItems": true})", "#/uniqueItems");
  names(R"({"type": "str"})", "#/type");
  names(R"({"anyOf": [{"minLength": -1}]})", "#/anyOf/0/minLength");
  names(R"({"minLength": 1.5})", "#/minLength");
  names(R"({"minimum": "1"})", "#/minimum");
  names(R"({"pattern": "(?=a)x"})", "#/pattern");
  names(R"({"pattern": "a\\b"})", "#/pattern");
  names(R"({"pattern": "(a)\\1"})", "#/pattern");
  names(R"({"format": "idn-email"})", "#/format");
  names(R"({"$ref": "#/nowhere"})", "#/$ref");
  names(R"({"$ref": "http://example.org"})", "#/$ref");
  names(R"({"$ref": "#"})", "leads back");
  names(R"({"allOf": [{"$ref": "#/allOf/0"}]})", "leads back");
  names(R"({"enum": []})", "#/enum");
  names(R"({"items": [{"type": "null"}]})", "prefixItems");
  names(R"({"pattern": "^a", "format": "date"})", "one pattern");
  names(R"(5)", "a schema");
  names(R"(false)", "none");
  names(R"({"type": "integer", "minimum": 3, "maximum": 2})", "none");
  names(R"({"type": "string", "minLength": 3, "maxLength": 2})", "none");
  names(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "none");
}

TEST(JsonSchema, AdversarialSchemasEndInErrors) {
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = "{\"allOf\":[" + deep + "]}";
  EXPECT_NE(error_of(deep), "");
  std::string nested = "{\"type\":";
  for (int i = 0; i < 50000; ++i) nested += "[";
  for (int i = 0; i < 50000; ++i) nested += "]";
  EXPECT_NE(error_of(nested + "}"), "");
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i)
    product += std::string(i ? "," : "") + R"({"anyOf":[{"minimum":1},{"maximum":0}]})";
  EXPECT_NE(error_of(product + "]}"), "");
  EXPECT_NE(error_of(R"({"pattern": "^((a?){900}b){900}$", "maxLength": 100000})"), "");
  EXPECT_NE(error_of(R"({"pattern": "^(a|bc){1,100000}$", "maxLength": 100000})"), "");
  // Large but plain bounds cost nothing.
  EXPECT_EQ(error_of(R"({"type": "string", "minLength": 1000000, "maxLength": 1000000000})"), "");
  EXPECT_EQ(error_of(R"({"type": "array", "items": {"type": "string"}, "maxItems": 1000000000})"), "");
  EXPECT_EQ(error_of(R"({"pattern": "^[a-z]{1,1000000}$"})"), "");
  std::string wide = R"({"properties":{)";
  for (int i = 0; i < 400; ++i)
    wide += std::string(i ? "," : "") + "\"p" + std::to_string(i) + "\":{\"type\":\"integer\"}";
  const auto many = schema(wide + "}}");
  EXPECT_TRUE(accepts(*many, "{\"p7\":1,\"p399\":2}"));
}

}  // namespace
}  // namespace mererun::testing
