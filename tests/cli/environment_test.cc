#include "cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mererun {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;

TEST(Environment, BooleansInEverySpelling) {
  const auto read = [](const std::string& value) {
    return Environment({{"MERERUN_Q35_MTP_SPECULATION", value}}).boolean("MERERUN_Q35_MTP_SPECULATION");
  };
  for (const char* value : {"1", " TRUE ", "yes", "On"}) EXPECT_EQ(read(value), true) << value;
  for (const char* value : {"0", "False", "NO", "Off\t"}) EXPECT_EQ(read(value), false) << value;
  for (const char* value : {"2", "", "enable", "o n"}) EXPECT_EQ(read(value), std::nullopt) << value;
}

TEST(Environment, OverridesSayWhatBecameOfEach) {
  const Environment environment({{"MERERUN_THREADS", "2"},
                                 {"MERERUN_Q35_EXACT_Q4_EXPERTS", "0"},
                                 {"MERERUN_Q35_PREFILL_CHUNK_TOKENS", "63"},
                                 {"MERERUN_API_KEY", "s3cret"},
                                 {"MERERUN_LOG", ""},
                                 {"MERERUN_UNHEARD_OF", "1"},
                                 {"HOME", "/x"}});
  EXPECT_THAT(environment.overrides(),
              ElementsAre(Override{"MERERUN_API_KEY", "(set)", OverrideEffect::kApplied},
                          Override{"MERERUN_Q35_EXACT_Q4_EXPERTS", "0", OverrideEffect::kNoEffect},
                          Override{"MERERUN_Q35_PREFILL_CHUNK_TOKENS", "63", OverrideEffect::kInvalid},
                          Override{"MERERUN_THREADS", "2", OverrideEffect::kApplied}));
  EXPECT_THAT(environment.warnings(),
              ElementsAre(HasSubstr("MERERUN_Q35_PREFILL_CHUNK_TOKENS: expected tokens a prefill chunk"),
                          HasSubstr("MERERUN_UNHEARD_OF is no variable")));
}

TEST(Environment, RangesOfNumbers) {
  const auto ratio = [](const std::string& value) {
    return Environment({{"MERERUN_Q35_MTP_HEAD_COST_RATIO", value}})
        .number("MERERUN_Q35_MTP_HEAD_COST_RATIO");
  };
  EXPECT_EQ(ratio("0.18"), 0.18);
  EXPECT_EQ(ratio("5"), 5.0);
  for (const char* value : {"0", "-1", "5.01", "nan", "inf", "x", "0.1x"})
    EXPECT_EQ(ratio(value), std::nullopt) << value;
}

TEST(Environment, SilentWithoutVariables) {
  EXPECT_THAT(Environment(Variables{}).overrides(), IsEmpty());
  EXPECT_THAT(Environment(Variables{{"MERERUN_GOLDEN_DIR", "x"}}).warnings(), IsEmpty());
}

TEST(ModelStore, FoldersInOrder) {
  const Environment environment(
      {{"MERERUN_MODELS", "/a::/b"}, {"XDG_DATA_HOME", "/data"}, {"HOME", "/home/u"}});
  EXPECT_THAT(model_store_folders(environment, "/opt/build/release/bin/mere.run"),
              ElementsAre("/a", "/b", "/data/mere.run/models", "/opt/build/release/share/mere.run/models",
                          "/opt/models"));
  EXPECT_THAT(model_store_folders(Environment(Variables{{"HOME", "/home/u"}}), "/usr/bin/mere.run"),
              ElementsAre("/home/u/.local/share/mere.run/models", "/usr/share/mere.run/models", "/models"));
}

}  // namespace

}  // namespace mererun
