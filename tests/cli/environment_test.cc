#include "cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "cli/report_parts.h"
#include "model/config.h"

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

/// The effects that a report states, by variable.
std::map<std::string, std::string> effects(const Variables& variables, const VariableUse& use) {
  std::map<std::string, std::string> out;
  for (const auto& o : overrides_json(Environment(variables), use)) out.emplace(o.at("name"), o.at("effect"));
  return out;
}

TEST(ReportedOverrides, HaveAnEffectWhereTheRunFollowsThem) {
  const Variables ratio = {{"MERERUN_Q35_MTP_HEAD_COST_RATIO", "0.5"}};
  DraftingFlags drafting;  // measured
  EXPECT_EQ(effects(ratio, {.drafting = drafting, .unread = {}}).begin()->second, "no-effect");
  drafting.mtp_cost = MtpCost::kFixed;
  drafting.mtp_cost_ratio = 0.5;
  EXPECT_EQ(effects(ratio, {.drafting = drafting, .unread = {}}).begin()->second, "applied");
  drafting.mtp_cost_ratio = 0.2;  // a flag's
  EXPECT_EQ(effects(ratio, {.drafting = drafting, .unread = {}}).begin()->second, "no-effect");

  const Variables history = {{"MERERUN_Q35_MTP_STREAM_HISTORY", "none"}};
  for (const bool is_flash : {false, true})
    EXPECT_EQ(
        effects(history,
                {.drafting = {}, .family = is_flash ? Family::kFlashNext : Family::kDense, .unread = {}})
            .begin()
            ->second,
        is_flash ? "no-effect" : "applied");

  for (const bool is_on : {false, true}) {
    const VariableUse use{.drafting = {}, .has_prefix_cache = is_on, .unread = {}};
    const std::string asked_on = is_on ? "applied" : "no-effect";
    const std::string asked_off = is_on ? "no-effect" : "applied";
    EXPECT_EQ(effects({{"MERERUN_Q35_PREFIX_KV_CACHE", "1"}}, use).begin()->second, asked_on);
    EXPECT_EQ(effects({{"MERERUN_Q35_PREFIX_KV_CACHE", "0"}}, use).begin()->second, asked_off);
    EXPECT_EQ(effects({{"MERERUN_PREFIX_CACHE_BYTES", "4096"}}, use).begin()->second, asked_on);
    EXPECT_EQ(effects({{"MERERUN_PREFIX_CACHE_BYTES", "0"}}, use).begin()->second, asked_off);
  }

  constexpr std::string_view kUnread[] = {"MERERUN_THREADS"};
  EXPECT_EQ(effects({{"MERERUN_THREADS", "2"}, {"MERERUN_DEVICE", "x"}}, {.drafting = {}, .unread = kUnread}),
            (Variables{{"MERERUN_THREADS", "no-effect"}, {"MERERUN_DEVICE", "invalid"}}));
}

TEST(BundledModels, OfThisCheckout) {
  EXPECT_EQ(bundled_models(MERERUN_SOURCE_DIR "/build/any/bin/mere.run"), MERERUN_SOURCE_DIR "/models");
  EXPECT_EQ(bundled_models("/nonexistent/a/b/c/mere.run"), "");
}

}  // namespace

}  // namespace mererun
