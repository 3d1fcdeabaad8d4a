#include "cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"

namespace mererun {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

TEST(Environment, WarnsOfIgnoredValuesAndUnknownNames) {
  const Environment environment(
      Variables{{"MERERUN_THREADS", "many"}, {"MERERUN_THREAD", "2"}, {"HOME", "/x"}});
  EXPECT_THAT(environment.warnings(), ElementsAre(HasSubstr("MERERUN_THREADS: expected an integer"),
                                                  HasSubstr("did you mean MERERUN_THREADS?")));
  EXPECT_THAT(Environment(Variables{{"MERERUN_GOLDEN_DIR", "x"}, {"MERERUN_TEST_BACKEND", "x"}}).warnings(),
              IsEmpty());
}

TEST(Environment, ValuesOfUnsetVariablesAreEmpty) {
  const Environment environment(Variables{{"HOME", "/x"}});
  EXPECT_EQ(environment.value("HOME"), "/x");
  EXPECT_EQ(environment.value("XDG_DATA_HOME"), "");
}

TEST(Environment, AFlagTakesTheEffectOfItsVariable) {
  Environment environment(Variables{{"MERERUN_BACKEND", "cpu"}, {"MERERUN_THREADS", "2"}});
  mark_beaten({"--threads", "--json"}, environment);
  ASSERT_EQ(environment.overrides.reports.size(), 2u);
  EXPECT_EQ(environment.overrides.reports[0].effect, OverrideEffect::kApplied);
  EXPECT_EQ(environment.overrides.reports[1].effect, OverrideEffect::kNoEffect);
}

TEST(BundledModels, OfThisCheckout) {
  EXPECT_EQ(bundled_models(MERERUN_SOURCE_DIR "/build/any/bin/mere.run"), MERERUN_SOURCE_DIR "/models");
  EXPECT_EQ(bundled_models("/nonexistent/a/b/c/mere.run"), "");
}

}  // namespace

}  // namespace mererun
