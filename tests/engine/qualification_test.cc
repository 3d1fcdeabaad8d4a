// The whole qualification of a checkpoint: on both bundled ones, and on an installed one where three
// variables name it.
#include "engine/qualification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/run.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;

const std::atomic<bool> kNotCancelled{false};

std::unique_ptr<Engine> load(const std::string& id, const std::string& root) {
  EngineOptions options;
  options.model.model = id;
  options.model.root = root;
  options.process.speculation = Speculation::kOn;
  options.prefix_cache_bytes = std::size_t{1} << 30;
  return Engine::load(options);
}

std::unique_ptr<Engine> load_bundled(const std::string& id) {
  return load(id, std::string(MERERUN_SOURCE_DIR "/models/") + id);
}

QualificationOptions short_options() {
  QualificationOptions options;
  options.prompt_tokens = 400;
  options.follow_up_tokens = 440;
  options.reply_tokens = 24;
  options.text_tokens = 32;
  options.oracle_tokens = {32};
  options.widths = {1, 4};
  return options;
}

std::string failures(const QualificationReport& report) {
  std::string text;
  for (const QualificationStep& step : report.steps) {
    if (!step.pass.value_or(true)) text += step.name + " ";
  }
  return text;
}

class Bundled : public ::testing::TestWithParam<const char*> {};

TEST_P(Bundled, Qualifies) {
  const auto engine = load_bundled(GetParam());
  QualificationOptions options;
  options.widths = {1, 4, 8, 9};
  const QualificationReport report = qualify(*engine, options, kNotCancelled);
  EXPECT_EQ(failures(report), "");
  EXPECT_TRUE(report.pass());
  std::vector<std::string> names;
  for (const QualificationStep& step : report.steps) {
    names.push_back(step.name);
    EXPECT_EQ(step.pass.has_value(), step.name != "restart");
  }
  EXPECT_THAT(names, ElementsAre("cold", "replay", "serial", "follow-up", "replay-after-follow-up", "code",
                                 "math", "prose", "widths", "restart"));
  EXPECT_EQ(report.steps[0].details.at("promptTokens"), QualificationValue(std::int64_t{4944}));
  EXPECT_EQ(report.steps[0].details.at("draftHistoryTokens"), QualificationValue(std::int64_t{4943}));
  EXPECT_EQ(report.steps[1].details.at("cachedTokens"), QualificationValue(std::int64_t{4944}));
  EXPECT_EQ(report.steps[3].details.at("draftHistoryTokens"), QualificationValue(std::int64_t{4972}));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Bundled, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& instance) {
                           return std::string(instance.param) == "demo-moe-4bit" ? "Moe" : "Dense";
                         });

TEST(Qualification, FailsWhereTheReplyLacksTheMarkerUnlessNoneIsExpected) {
  const auto engine = load_bundled("demo-dense-4bit");
  QualificationOptions options = short_options();
  options.reply_tokens = 6;  // too few to name it, enough to draft
  QualificationReport report = qualify(*engine, options, kNotCancelled);
  EXPECT_EQ(failures(report), "cold ");
  EXPECT_FALSE(report.pass());
  options.expects_retrieval = false;
  report = qualify(*engine, options, kNotCancelled);
  EXPECT_EQ(failures(report), "");
  EXPECT_EQ(report.steps[0].details.at("namesMarker"), QualificationValue(false));
}

TEST(Qualification, FailsWithoutADraftHead) {
  EngineOptions settings;
  settings.model.root = MERERUN_SOURCE_DIR "/models/demo-dense-4bit";
  settings.process.speculation = Speculation::kOff;  // so the head is not loaded
  settings.prefix_cache_bytes = std::size_t{1} << 28;
  const auto engine = Engine::load(settings);
  ASSERT_EQ(engine->drafter(), nullptr);
  const QualificationReport report = qualify(*engine, short_options(), kNotCancelled);
  EXPECT_FALSE(report.pass());
  EXPECT_EQ(report.steps[0].pass, false);
  EXPECT_EQ(report.steps[0].details.at("admissionReason"), QualificationValue(std::string("no-draft-head")));
  EXPECT_EQ(engine->admission_process().speculation, Speculation::kOff);  // as it was before
}

TEST(Qualification, OfAnInstalledCheckpoint) {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  const std::string id = variable("MERERUN_TEST_Q35_TRANSFER_MODEL_ID");
  const std::string root = variable("MERERUN_TEST_Q35_TRANSFER_MODEL_ROOT");
  if (variable("MERERUN_TEST_Q35_TRANSFER") != "1" || id.empty() || root.empty()) {
    GTEST_SKIP() << "runs when MERERUN_TEST_Q35_TRANSFER=1 and MERERUN_TEST_Q35_TRANSFER_MODEL_ID and "
                    "MERERUN_TEST_Q35_TRANSFER_MODEL_ROOT are set";
  }
  const auto engine = load(id, root);
  QualificationOptions options;
  options.widths = {1, 4, 8, 9};
  if (engine->resolved().manifest)
    options.expects_retrieval = engine->resolved().manifest->expects_retrieval.value_or(true);
  EXPECT_EQ(failures(qualify(*engine, options, kNotCancelled)), "");
}

}  // namespace
}  // namespace mererun
