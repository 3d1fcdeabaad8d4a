// Answers sampled under a mask are valid, whatever the logits say.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "decode/sampler.h"
#include "grammar/compile.h"
#include "tests/grammar/random_schema.h"
#include "tests/grammar/schema_validator.h"
#include "tests/grammar/text_probe.h"

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;

/// Logits without a model: most tokens look alike, so that the walk goes everywhere the mask lets it.
class NoiseLogits {
 public:
  NoiseLogits(int vocabulary, std::uint64_t seed)
      : row_(static_cast<std::size_t>(vocabulary)), state_(seed * 2 + 1) {}

  /// `raised` ids are likelier by as much as the noise is wide.
  std::span<const float> next(const std::vector<TokenId>& raised) {
    for (float& value : row_) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(state_ >> 40) * (8.0f / 16777216.0f);
    }
    for (const TokenId id : raised) row_[static_cast<std::size_t>(id)] += 12;
    return row_;
  }

 private:
  std::vector<float> row_;
  std::uint64_t state_;
};

struct Answer {
  std::string text;
  bool is_complete = false;
};

Answer sample(TokenConstraint& constraint, const GrammarVocabulary& vocabulary, double temperature,
              std::uint64_t seed, int max_tokens) {
  SamplingOptions options;
  options.temperature = temperature;
  options.seed = seed;
  Sampler sampler(options, {});
  NoiseLogits logits(vocabulary.size() + 50, seed);  // a padded vocabulary, as models have
  // Noise hardly ever ends a string, or a list of lists; after a while it is helped.
  std::vector<TokenId> endings;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    const bool ends = text.find_first_of("\"}]") != std::string_view::npos || text == "n" || text == "null";
    if (ends && text.find_first_of("{[") == std::string_view::npos) endings.push_back(id);
  }
  Answer answer;
  for (int i = 0; i < max_tokens; ++i) {
    const auto row = logits.next(i < 150 ? std::vector<TokenId>{} : endings);
    const TokenId id = sampler.choose(row, i, constraint.mask());
    constraint.accept(id);
    if (id == vocabulary.eos_ids().front()) {
      answer.is_complete = true;
      break;
    }
    answer.text += vocabulary.text(id);
    if (constraint.is_complete()) {
      answer.is_complete = true;
      break;
    }
  }
  return answer;
}

TEST(SampledAnswers, TwoHundredRandomSchemas) {
  const auto vocabulary = demo_vocabulary();
  int answers = 0;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    const Json schema = random_schema(seed);
    SCOPED_TRACE(schema.dump());
    const auto constraint = compile_json_schema(schema, vocabulary);
    for (const double temperature : {0.0, 1.5}) {
      const auto copy = constraint->clone();
      const Answer answer = sample(*copy, *vocabulary, temperature, seed, 3000);
      ASSERT_TRUE(answer.is_complete) << answer.text;
      ASSERT_TRUE(Json::accept(answer.text)) << answer.text;
      ASSERT_TRUE(is_valid(schema, schema, Json::parse(answer.text))) << answer.text;
      ++answers;
    }
  }
  EXPECT_EQ(answers, 400);
}

TEST(SampledAnswers, TheValidatorRefusesWhatSchemasForbid) {
  const Json schema =
      Json::parse(R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}},
    "required": ["a"], "additionalProperties": {"type": "string", "maxLength": 2}})");
  EXPECT_TRUE(is_valid(schema, schema, Json::parse(R"({"a": 3, "b": "東東"})")));
  for (const char* text :
       {R"({})", R"({"a": 2})", R"({"a": 3.5})", R"({"a": 3, "b": "xyz"})", R"({"a": 3, "b": 1})", "[]"})
    EXPECT_FALSE(is_valid(schema, schema, Json::parse(text))) << text;
}

TEST(SampledAnswers, ObjectsOfAnyContentAreJson) {
  const auto vocabulary = demo_vocabulary();
  const auto constraint = compile_json_object(vocabulary);
  int complete = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto copy = constraint->clone();
    const Answer answer = sample(*copy, *vocabulary, 1.5, seed, 600);
    if (!answer.is_complete) continue;
    ++complete;
    ASSERT_TRUE(Json::accept(answer.text)) << answer.text;
    ASSERT_TRUE(Json::parse(answer.text).is_object());
  }
  EXPECT_GT(complete, 5);
}

/// Every token of the mask, and no other, is allowed by the text that it adds, read byte by byte.
void expect_exact_mask(TokenConstraint& constraint, const TokenConstraint& by_bytes,
                       const GrammarVocabulary& vocabulary) {
  const TokenMask* mask = constraint.mask();
  ASSERT_NE(mask, nullptr);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const std::string_view bytes = vocabulary.grammar_bytes(id);
    if (bytes.empty() || bytes.front() == '\xFF') continue;  // markup is no text
    ASSERT_EQ(mask->allows(id), accepts_beginning(by_bytes, bytes)) << id << " \"" << bytes << "\"";
  }
}

TEST(SampledAnswers, MasksAreExactInsideRuns) {
  const auto vocabulary = demo_vocabulary();
  const char* schemas[] = {
      R"({"type": "string"})", R"({"type": "string", "maxLength": 3})",
      R"({"type": "string", "minLength": 2, "maxLength": 9})",
      R"({"anyOf": [{"type": "string", "maxLength": 2}, {"pattern": "^[a-z ]+$"}, {"const": "value of"}]})",
      R"({"type": "string", "pattern": "^[^a-f]{3,7}$"})"};
  for (const char* text : schemas) {
    SCOPED_TRACE(text);
    const auto tokens = compile_json_schema(Json::parse(text), vocabulary);
    const auto bytes = compile_json_schema(Json::parse(text), byte_vocabulary());
    for (const char* begin : {"", "\"", "\"v", "\"\xC3", "\"\\"}) {
      const auto token_copy = tokens->clone(), byte_copy = bytes->clone();
      if (!accepts_beginning(*byte_copy, begin)) continue;
      for (const char byte : std::string_view(begin)) {
        for (TokenId id = 0; id < vocabulary->size(); ++id) {
          if (vocabulary->grammar_bytes(id) != std::string_view(&byte, 1)) continue;
          token_copy->accept(id);
          break;
        }
        byte_copy->accept(static_cast<unsigned char>(byte));
      }
      expect_exact_mask(*token_copy, *byte_copy, *vocabulary);
    }
  }
}

TEST(SampledAnswers, ToolCallsAreWhole) {
  const auto vocabulary = demo_vocabulary();
  const Json tools =
      Json::parse(R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string", "maxLength": 30},
    "n": {"type": "integer", "minimum": -5, "maximum": 5}, "o": {"type": "array", "items": {"type": "string", "maxLength": 9},
    "maxItems": 2}}, "required": ["s", "n"]}}])");
  const auto constraint = compile_tool_calls(tools, {.name = "f", .allows_several = false}, vocabulary);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto copy = constraint->clone();
    const Answer answer = sample(*copy, *vocabulary, 1.5, seed, 600);
    ASSERT_TRUE(answer.is_complete);
    EXPECT_TRUE(answer.text.starts_with("<tool_call>\n<function=f>\n<parameter=s>\n")) << answer.text;
    EXPECT_TRUE(answer.text.ends_with("\n</parameter>\n</function>\n</tool_call>")) << answer.text;
  }
}

}  // namespace
}  // namespace mererun::testing
