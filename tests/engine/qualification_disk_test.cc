// Qualification across a restart of the engine, in builds that keep a prefix cache on disk.

#include <gtest/gtest.h>

#include "tests/engine/qualification_fixture.h"

namespace mererun {
namespace {

class BundledDisk : public ::testing::TestWithParam<const char*> {};

TEST_P(BundledDisk, ReplaysFromDiskAfterARestart) {
  testing::Restartable subject(GetParam(), testing::bundled_root(GetParam()));
  QualificationReport report = subject.qualify(testing::short_options(false));
  EXPECT_EQ(testing::failures(report), "");
  QualificationStep step = report.steps.back();
  EXPECT_EQ(step.name, "restart");
  EXPECT_EQ(step.pass, true);
  EXPECT_EQ(step.details.at("cachedTokens"), QualificationValue(std::int64_t{400}));
  EXPECT_EQ(step.details.at("draftHistoryTokens"), QualificationValue(std::int64_t{399}));
  EXPECT_EQ(step.details.at("tier"), QualificationValue(std::string("disk")));
  EXPECT_EQ(step.details.at("firstDraftsEqual"), QualificationValue(true));
  EXPECT_EQ(step.details.at("stateEqual"), QualificationValue(true));
  for (const char* check : {"serial", "followUp", "replayAfterFollowUp"})
    EXPECT_EQ(step.details.at(check), QualificationValue(true)) << check;

  // The next process over another folder computes the prompt: the same answer, but no restart was proven.
  testing::Restartable lost(GetParam(), testing::bundled_root(GetParam()));
  report = lost.qualify(testing::short_options(false), "another");
  EXPECT_EQ(testing::failures(report), "restart ");
  EXPECT_EQ(report.steps.back().details.at("tier"), QualificationValue(std::string()));
  EXPECT_EQ(report.steps.back().details.at("stateEqual"), QualificationValue(true));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, BundledDisk, ::testing::Values("demo-dense-4bit", "demo-moe-4bit"),
                         [](const auto& instance) {
                           return std::string(instance.param) == "demo-moe-4bit" ? "Moe" : "Dense";
                         });

}  // namespace
}  // namespace mererun
