#include "decode/overrides.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "decode/option_text.h"

namespace mererun {
namespace {

/// Effect that reports give a variable; "absent" when they don't name it.
std::string effect_of(const Overrides& overrides, const std::string& name) {
  for (const OverrideReport& report : overrides.reports) {
    if (report.name == name) return std::string(name_of(report.effect));
  }
  return "absent";
}

std::string effect(const std::string& name, const std::string& value) {
  return effect_of(parse_overrides({{name, value}}), name);
}

TEST(Overrides, AreEmptyWithoutVariables) {
  const Overrides overrides = parse_overrides({{"PATH", "/bin"}, {"MERERUN_UNRELATED", "1"}});
  EXPECT_TRUE(overrides.reports.empty());
  EXPECT_TRUE(overrides.warnings.empty());
  EXPECT_EQ(overrides.speculation, Speculation::kAuto);
}

TEST(Overrides, ReadEveryAppliedVariable) {
  const std::map<std::string, std::string> variables = {
      {"MERERUN_MODELS", "/a:/b c::/d"},
      {"MERERUN_API_KEY", "secret"},
      {"MERERUN_BACKEND", " CPU"},
      {"MERERUN_DEVICE", "3"},
      {"MERERUN_THREADS", "2"},
      {"MERERUN_CPU_ISA", "AVX2"},
      {"MERERUN_LOG", "debug"},
      {"MERERUN_Q35_MTP_SPECULATION", "off"},
      {"MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", "0"},
      {"MERERUN_Q35_MTP_BLOCK_SIZE", "12"},
      {"MERERUN_Q35_MTP_HEAD_COST_RATIO", "0.25"},
      {"MERERUN_Q35_MTP_STREAM_HISTORY", "none"},
      {"MERERUN_Q35_MTP_PROFILE", "1"},
      {"MERERUN_Q35_PREFIX_KV_CACHE", "0"},
      {"MERERUN_PREFIX_CACHE_BYTES", "17179869184"},
      {"MERERUN_Q35_PREFILL_CHUNK_TOKENS", "512"},
      {"MERERUN_Q35_CONTINUOUS_BATCHING", "0"},
      {"MERERUN_Q35_DEBUG_PROMPT_TOKENS", "/tmp/ids.json"},
      {"MERERUN_TEST_Q35_TRANSFER", "1"},
      {"MERERUN_TEST_Q35_TRANSFER_MODEL_ID", "demo"},
      {"MERERUN_TEST_Q35_TRANSFER_MODEL_ROOT", "/m"},
  };
  const Overrides o = parse_overrides(variables);
  EXPECT_TRUE(o.warnings.empty());
  ASSERT_EQ(o.reports.size(), variables.size());
  for (const OverrideReport& report : o.reports) {
    EXPECT_EQ(name_of(report.effect), "applied") << report.name;
    EXPECT_EQ(report.value, report.name == "MERERUN_API_KEY" ? "(set)" : variables.at(report.name));
  }
  EXPECT_EQ(o.model_folders, (std::vector<std::string>{"/a", "/b c", "/d"}));
  EXPECT_EQ(o.api_key, "secret");
  EXPECT_EQ(o.backend, "cpu");
  EXPECT_EQ(o.device, 3);
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.cpu_isa, "avx2");
  EXPECT_EQ(o.log_level, LogLevel::kDebug);
  EXPECT_EQ(o.speculation, Speculation::kOff);
  EXPECT_EQ(o.min_prompt_tokens, 0);
  EXPECT_EQ(o.width, 12);
  EXPECT_EQ(o.head_cost_ratio, 0.25);
  EXPECT_EQ(o.stream_history, StreamHistory::kNone);
  EXPECT_TRUE(o.profile);
  EXPECT_EQ(o.prefix_cache, false);
  EXPECT_EQ(o.prefix_cache_bytes, 17179869184u);
  EXPECT_EQ(o.prefill_chunk_tokens, 512);
  EXPECT_EQ(o.debug_prompt_tokens, "/tmp/ids.json");
  EXPECT_TRUE(o.test_transfer);
  EXPECT_EQ(o.test_transfer_model_id, "demo");
  EXPECT_EQ(o.test_transfer_model_root, "/m");
}

TEST(Overrides, ReportVariablesWithoutEffect) {
  for (const char* name :
       {"MERERUN_Q35_EXACT_Q4_EXPERTS", "MERERUN_Q35_FUSED_QKV", "MERERUN_Q35_SCOPED_COMPILE",
        "MERERUN_Q35_ASYNC_DECODE_BLOCKS", "MERERUN_Q35_BATCHED_GPU_SAMPLING", "MERERUN_Q38_EXACT_WIDE_Q4",
        "MERERUN_Q38_EXACT_WIDE_Q4_SHAPES", "MERERUN_Q38_EXACT_WIDE_DENSE",
        "MERERUN_Q38_EXACT_WIDE_DENSE_SHAPES", "MERERUN_Q38_EXACT_WIDE_QSA", "MERERUN_Q38_EXACT_WIDE_MOE"}) {
    EXPECT_EQ(effect(name, "0"), "no-effect") << name;
    EXPECT_EQ(effect(name, "anything"), "no-effect") << name;
  }
}

TEST(Overrides, SwitchesThatAreAlwaysOffHoldWhenSetSo) {
  for (const char* name : {"MERERUN_Q35_FUSED_SWITCH_GLU", "MERERUN_Q35_MTP_PIPELINED_FALLBACK",
                           "MERERUN_Q35_CONTINUOUS_BATCHING"}) {
    for (const char* off : {"0", "false", " OFF "}) EXPECT_EQ(effect(name, off), "applied") << name << off;
    for (const char* on : {"1", "true", "Yes", ""}) EXPECT_EQ(effect(name, on), "no-effect") << name << on;
    EXPECT_EQ(effect(name, "2"), "invalid") << name;
  }
}

TEST(Overrides, IgnoreInvalidValuesWithOneWarning) {
  const std::map<std::string, std::vector<std::string>> invalid = {
      {"MERERUN_BACKEND", {"metal"}},
      {"MERERUN_DEVICE", {"-1", "x", "1.5"}},
      {"MERERUN_THREADS", {"0", "two", "99999999999999999999"}},
      {"MERERUN_CPU_ISA", {"sse2", "avx", "vnni"}},
      {"MERERUN_LOG", {"loud"}},
      {"MERERUN_Q35_MTP_SPECULATION", {"2", "maybe"}},
      {"MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", {"-1", "x", "1k"}},
      {"MERERUN_Q35_MTP_BLOCK_SIZE", {"1", "0", "-3", "4.0", "x"}},
      {"MERERUN_Q35_MTP_HEAD_COST_RATIO", {"0", "-1", "5.1", "nan", "inf", "x"}},
      {"MERERUN_Q35_MTP_PROFILE", {"much"}},
      {"MERERUN_Q35_PREFIX_KV_CACHE", {"some"}},
      {"MERERUN_PREFIX_CACHE_BYTES", {"-1", "8GiB"}},
      {"MERERUN_Q35_PREFILL_CHUNK_TOKENS", {"63", "8193", "x"}},
      {"MERERUN_Q35_CONTINUOUS_BATCHING", {"3"}},
      {"MERERUN_TEST_Q35_TRANSFER", {"2"}},
  };
  for (const auto& [name, values] : invalid) {
    for (const std::string& value : values) {
      const Overrides overrides = parse_overrides({{name, value}});
      EXPECT_EQ(effect_of(overrides, name), "invalid") << name << "=" << value;
      ASSERT_EQ(overrides.warnings.size(), 1u);
      EXPECT_NE(overrides.warnings[0].find(name), std::string::npos);
    }
  }
  EXPECT_EQ(parse_overrides({{"MERERUN_Q35_MTP_SPECULATION", "2"}}).speculation, Speculation::kAuto);
  EXPECT_EQ(parse_overrides({{"MERERUN_Q35_MTP_BLOCK_SIZE", "1"}}).width, std::nullopt);
  EXPECT_EQ(parse_overrides({{"MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", "-1"}}).min_prompt_tokens, std::nullopt);
}

TEST(Overrides, WarnWithTheRangeOfAnInteger) {
  const std::pair<const char*, IntegerRange> kCases[] = {
      {"MERERUN_THREADS", option_ranges::kThreads},
      {"MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", option_ranges::kMinPromptTokens},
      {"MERERUN_Q35_MTP_BLOCK_SIZE", option_ranges::kMtpBlockSize},
      {"MERERUN_PREFIX_CACHE_BYTES", option_ranges::kCacheBytes}};
  for (const auto& [name, range] : kCases) {
    for (const std::string& value : {std::to_string(range.low - 1), std::string("99999999999999999999")})
      EXPECT_EQ(parse_overrides({{name, value}}).warnings.at(0),
                name + (": expected " + range.text()) + ", got \"" + value + "\"; it is ignored");
    for (const std::int64_t value : {range.low, range.high})
      EXPECT_EQ(effect_of(parse_overrides({{name, std::to_string(value)}}), name), "applied") << name;
  }
}

TEST(Overrides, TreatAnEmptyValueAsUnset) {
  for (const char* name : {"MERERUN_Q35_MTP_SPECULATION", "MERERUN_THREADS", "MERERUN_API_KEY"}) {
    const Overrides overrides = parse_overrides({{name, " "}});
    EXPECT_EQ(effect_of(overrides, name), "no-effect") << name;
    EXPECT_TRUE(overrides.warnings.empty());
    EXPECT_EQ(overrides.api_key, std::nullopt);
  }
}

TEST(Overrides, PointOutMisspelledNames) {
  const Overrides overrides = parse_overrides({{"MERERUN_Q35_MTP_SPECULATON", "0"}});
  EXPECT_EQ(effect_of(overrides, "MERERUN_Q35_MTP_SPECULATON"), "invalid");
  EXPECT_EQ(overrides.warnings.size(), 1u);
}

TEST(Overrides, EffectCanBeCorrectedUnlessInvalid) {
  Overrides overrides = parse_overrides({{"MERERUN_Q35_MTP_STREAM_HISTORY", "0"}, {"MERERUN_THREADS", "x"}});
  EXPECT_EQ(effect_of(overrides, "MERERUN_Q35_MTP_STREAM_HISTORY"), "applied");
  overrides.set_effect("MERERUN_Q35_MTP_STREAM_HISTORY", OverrideEffect::kNoEffect);
  overrides.set_effect("MERERUN_THREADS", OverrideEffect::kNoEffect);
  overrides.set_effect("MERERUN_DEVICE", OverrideEffect::kNoEffect);
  EXPECT_EQ(effect_of(overrides, "MERERUN_Q35_MTP_STREAM_HISTORY"), "no-effect");
  EXPECT_EQ(effect_of(overrides, "MERERUN_THREADS"), "invalid");
  EXPECT_EQ(overrides.reports.size(), 2u);
}

TEST(OptionText, TrimsAndLowersTheCase) {
  EXPECT_EQ(normalised("  \tOn\r\n"), "on");
  EXPECT_EQ(normalised(""), "");
  EXPECT_EQ(normalised(" \n"), "");
  EXPECT_EQ(normalised("A b"), "a b");
}

}  // namespace
}  // namespace mererun
