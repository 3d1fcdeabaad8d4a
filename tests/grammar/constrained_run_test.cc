// Constrained requests draft, and say what serial decoding says.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/constraints.h"
#include "engine/run.h"
#include "tests/grammar/random_schema.h"
#include "tests/grammar/schema_validator.h"
#include "tests/support/models.h"

namespace mererun::testing {
namespace {

using Json = nlohmann::ordered_json;
using Form = std::function<std::unique_ptr<TokenConstraint>(const Engine&)>;

std::unique_ptr<Engine> load_demo(const char* model) {
  EngineOptions options;
  options.model = {.model = "", .root = bundled(model).string()};
  options.process.speculation = Speculation::kOn;
  options.process.min_prompt_tokens = 0;
  options.cost = {.measured = false};
  options.threads = 1;
  return Engine::load(options);
}

GenerateResult ask(Engine& engine, const Form& form, double temperature, Speculation speculation,
                   bool thinks = false, std::optional<int> logprobs = {}) {
  GenerateRequest request;
  request.chat =
      ChatPrompt{.messages = std::make_shared<const Json>(
                     Json::parse(R"([{"role": "user", "content": "Give the result as JSON: 12 + 30"}])")),
                 .tools = nullptr,
                 .template_arguments = std::make_shared<const Json>(Json{{"enable_thinking", thinks}})};
  request.sampling.temperature = temperature;
  request.sampling.seed = 11;
  request.max_tokens = thinks ? 40 : 160;
  request.speculation = speculation;
  request.full_depth = true;
  request.uses_prefix_cache = false;
  request.logprobs = logprobs;
  request.constraint = form(engine);
  return generate(engine, std::move(request));
}

const Json& small_schema() {
  static const Json kSchema = Json::parse(R"({"type": "object", "properties": {
    "question": {"type": "string", "maxLength": 24}, "result": {"type": "integer", "minimum": 0, "maximum": 999},
    "steps": {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9 +=]{1,12}$"}, "maxItems": 2},
    "unit": {"enum": ["none", "other"]}}, "required": ["question", "result", "steps", "unit"]})");
  return kSchema;
}

void expect_same_text(Engine& engine, const Form& form, bool must_accept_drafts) {
  for (const double temperature : {0.0, 1.5}) {
    const GenerateResult serial = ask(engine, form, temperature, Speculation::kOff);
    const GenerateResult drafted = ask(engine, form, temperature, Speculation::kOn);
    EXPECT_EQ(serial.ids, drafted.ids) << serial.content << "\n" << drafted.content;
    EXPECT_EQ(serial.content, drafted.content);
    EXPECT_EQ(serial.finish, drafted.finish);
    EXPECT_EQ(drafted.acceleration.route, Route::kMtpSpeculative);
    EXPECT_EQ(serial.acceleration.route, Route::kFinalTargetPipelined);
    // With log-probabilities every row is looked at here; without, the device's choice stands where the form
    // allows it.
    for (const Speculation speculation : {Speculation::kOff, Speculation::kOn})
      EXPECT_EQ(ask(engine, form, temperature, speculation, false, 0).ids, serial.ids);
    if (must_accept_drafts) {
      const Statistics& statistics = drafted.acceleration.statistics;
      EXPECT_GT(statistics.accepted(), statistics.drafted() / 4);
    }
  }
}

class ConstrainedRun : public ::testing::TestWithParam<const char*> {};

TEST_P(ConstrainedRun, DraftsLikeSerial) {
  const auto engine = load_demo(GetParam());
  const Form schema = [](const Engine& e) { return json_schema_constraint(e, small_schema()); };
  expect_same_text(*engine, schema, true);
  for (const double temperature : {0.0, 1.5}) {
    const GenerateResult result = ask(*engine, schema, temperature, Speculation::kOn);
    ASSERT_EQ(result.finish, FinishReason::kStop) << result.content;
    EXPECT_TRUE(is_valid(small_schema(), small_schema(), Json::parse(result.content))) << result.content;
  }
  expect_same_text(
      *engine, [](const Engine& e) { return json_object_constraint(e); }, false);
  expect_same_text(
      *engine,
      [](const Engine& e) {
        return grammar_constraint(e, "root ::= (\"yes\" | \"no\") (\" \" [a-z]{2,9}){3,8} \".\"");
      },
      false);
  expect_same_text(
      *engine,
      [](const Engine& e) {
        return tool_call_constraint(e, Json::parse(R"([{"name": "add", "parameters": {"properties": {
          "a": {"type": "integer", "maximum": 99}, "b": {"type": "string", "maxLength": 12}}, "required": ["a", "b"]}}])"),
                                    {.name = "add", .allows_several = false});
      },
      true);
}

TEST_P(ConstrainedRun, TheReasoningIsFree) {
  const auto engine = load_demo(GetParam());
  const Form digits = [](const Engine& e) { return grammar_constraint(e, "root ::= [0-9]{1,4}"); };
  const GenerateResult serial = ask(*engine, digits, 0, Speculation::kOff, true);
  const GenerateResult drafted = ask(*engine, digits, 0, Speculation::kOn, true);
  EXPECT_EQ(serial.ids, drafted.ids);
  EXPECT_EQ(serial.content, drafted.content);
  EXPECT_EQ(drafted.content.find_first_not_of("0123456789"), std::string::npos) << drafted.content;
  EXPECT_FALSE(drafted.reasoning.empty() && drafted.content.empty());
}

INSTANTIATE_TEST_SUITE_P(Bundled, ConstrainedRun, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"));

}  // namespace
}  // namespace mererun::testing
