// The whole qualification of a checkpoint: on both bundled ones, and on an installed one where three
// variables name it.
#include "engine/qualification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/run.h"
#include "tests/support/temp_folder.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;

const std::atomic<bool> kNotCancelled{false};

EngineOptions options_for(const std::string& id, const std::string& root) {
  EngineOptions options;
  options.model.model = id;
  options.model.root = root;
  options.process.speculation = Speculation::kOn;
  options.prefix_cache_bytes = std::size_t{1} << 30;
  return options;
}

std::string bundled_root(const std::string& id) { return std::string(MERERUN_SOURCE_DIR "/models/") + id; }

std::unique_ptr<Engine> load_bundled(const std::string& id) {
  return Engine::load(options_for(id, bundled_root(id)));
}

/// An engine with a prefix cache on disk that can be restarted.
class Restartable {
 public:
  Restartable(const std::string& id, const std::string& root) : options_(options_for(id, root)) {
    if (is_disk_store_built()) options_.prefix_cache_dir = temp_ / "cache";
    engine_ = Engine::load(options_);
  }
  QualificationReport qualify(QualificationOptions options, const std::string& other_folder = {}) {
    if (is_disk_store_built()) {
      options.restart = [this, other_folder]() -> Engine& {
        engine_.reset();
        if (!other_folder.empty()) options_.prefix_cache_dir = temp_ / other_folder;
        engine_ = Engine::load(options_);
        return *engine_;
      };
    }
    return mererun::qualify(*engine_, options, kNotCancelled);
  }
  Engine& engine() { return *engine_; }

 private:
  testing::TempFolder temp_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

QualificationOptions short_options(bool expects_retrieval = true) {
  QualificationOptions options;
  options.expects_retrieval = expects_retrieval;
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
  QualificationOptions options;
  options.widths = {1, 4, 8, 9};
  const QualificationReport report = Restartable(GetParam(), bundled_root(GetParam())).qualify(options);
  EXPECT_EQ(failures(report), "");
  EXPECT_TRUE(report.pass());
  std::vector<std::string> names;
  for (const QualificationStep& step : report.steps) {
    names.push_back(step.name);
    EXPECT_EQ(step.pass.has_value(), step.name != "restart" || is_disk_store_built());
  }
  EXPECT_THAT(names, ElementsAre("cold", "replay", "serial", "follow-up", "replay-after-follow-up", "code",
                                 "math", "prose", "widths", "restart"));
  EXPECT_EQ(report.steps[0].details.at("promptTokens"), QualificationValue(std::int64_t{4944}));
  EXPECT_EQ(report.steps[0].details.at("draftHistoryTokens"), QualificationValue(std::int64_t{4943}));
  EXPECT_EQ(report.steps[1].details.at("cachedTokens"), QualificationValue(std::int64_t{4944}));
  EXPECT_EQ(report.steps[3].details.at("draftHistoryTokens"), QualificationValue(std::int64_t{4972}));
}

TEST_P(Bundled, ReplaysFromDiskAfterARestart) {
  if (!is_disk_store_built()) GTEST_SKIP() << "this build keeps no prefix cache on disk";
  Restartable subject(GetParam(), bundled_root(GetParam()));
  QualificationReport report = subject.qualify(short_options(false));
  EXPECT_EQ(failures(report), "");
  QualificationStep step = report.steps.back();
  EXPECT_EQ(step.name, "restart");
  EXPECT_EQ(step.pass, true);
  EXPECT_EQ(step.details.at("cachedTokens"), QualificationValue(std::int64_t{400}));
  EXPECT_EQ(step.details.at("draftHistoryTokens"), QualificationValue(std::int64_t{399}));
  EXPECT_EQ(step.details.at("tier"), QualificationValue(std::string("disk")));
  EXPECT_EQ(step.details.at("firstDraftsEqual"), QualificationValue(true));
  EXPECT_EQ(step.details.at("stateEqual"), QualificationValue(true));

  // The next process over another folder computes the prompt: the same answer, but no restart was proven.
  Restartable lost(GetParam(), bundled_root(GetParam()));
  report = lost.qualify(short_options(false), "another");
  EXPECT_EQ(failures(report), "restart ");
  EXPECT_EQ(report.steps.back().details.at("tier"), QualificationValue(std::string()));
  EXPECT_EQ(report.steps.back().details.at("stateEqual"), QualificationValue(true));
}

TEST(Qualification, WithoutAFolderTheRestartIsNotRun) {
  const auto engine = load_bundled("demo-dense-4bit");
  const QualificationReport report = qualify(*engine, short_options(false), kNotCancelled);
  EXPECT_FALSE(report.steps.back().pass.has_value());
  EXPECT_TRUE(report.steps.back().details.contains("notRun"));
  EXPECT_TRUE(report.pass());
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
  Restartable subject(id, root);
  QualificationOptions options;
  options.widths = {1, 4, 8, 9};
  if (subject.engine().resolved().manifest)
    options.expects_retrieval = subject.engine().resolved().manifest->expects_retrieval.value_or(true);
  EXPECT_EQ(failures(subject.qualify(options)), "");
}

}  // namespace
}  // namespace mererun
