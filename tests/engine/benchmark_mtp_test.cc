#include "engine/benchmark_mtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/synthetic_model.h"

namespace mererun {
namespace {

using ::testing::ElementsAre;

const std::atomic<bool> kNotCancelled{false};

/// Notes what it is asked for; every output is the same unless `differs` says otherwise.
class RecordingGenerator final : public MtpGenerator {
 public:
  MtpMeasurement generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                          const std::atomic<bool>&) override {
    calls.push_back(std::string(name_of(variant)) + " " + scenario.prompt + " " + std::to_string(tokens));
    MtpMeasurement m{.variant = variant};
    m.ids.assign(static_cast<std::size_t>(tokens), variant == differs ? 8 : 7);
    m.output_sha256 = "same";
    m.timings = {.prefill_seconds = 1.0, .decode_seconds = variant == MtpVariant::kBaseline ? 4.0 : 2.0};
    return m;
  }
  std::vector<std::string> calls;
  std::optional<MtpVariant> differs;
};

MtpScenario scenario(std::string prompt, int tokens) {
  MtpScenario s;
  s.prompt = std::move(prompt);
  s.decode_tokens = tokens;
  return s;
}

TEST(MtpBenchmark, EachVariantWarmsUpAndIsMeasuredInTheGivenOrder) {
  RecordingGenerator generator;
  const MtpBenchmarkOptions options{.variants = {MtpVariant::kForced, MtpVariant::kBaseline},
                                    .repetitions = 2,
                                    .warmups = 1,
                                    .warmup_tokens = 16};
  const auto results =
      run_mtp_benchmark(generator, {scenario("a", 32), scenario("b", 4)}, options, kNotCancelled);
  EXPECT_THAT(generator.calls, ElementsAre("forced a 16", "forced a 32", "baseline a 16", "baseline a 32",
                                           "forced a 16", "forced a 32", "baseline a 16", "baseline a 32",
                                           "forced b 4", "forced b 4", "baseline b 4", "baseline b 4",
                                           "forced b 4", "forced b 4", "baseline b 4", "baseline b 4"));
  ASSERT_EQ(results.size(), 4U);
  EXPECT_EQ(results[1].repetition, 2);
  EXPECT_EQ(results[2].scenario, 1U);
}

TEST(MtpBenchmark, WarmupsAreOptional) {
  RecordingGenerator generator;
  run_mtp_benchmark(generator, {scenario("a", 32)}, {.variants = {MtpVariant::kAdaptive}, .warmups = 0},
                    kNotCancelled);
  EXPECT_THAT(generator.calls, ElementsAre("adaptive a 32"));
}

TEST(MtpBenchmark, ParityComparesEveryVariant) {
  RecordingGenerator generator;
  const MtpBenchmarkOptions options{
      .variants = {MtpVariant::kBaseline, MtpVariant::kAdaptive, MtpVariant::kForced}};
  EXPECT_TRUE(run_mtp_benchmark(generator, {scenario("a", 4)}, options, kNotCancelled)[0].outputs_equal());
  generator.differs = MtpVariant::kForced;  // same count and hash, other ids
  EXPECT_FALSE(run_mtp_benchmark(generator, {scenario("a", 4)}, options, kNotCancelled)[0].outputs_equal());
}

TEST(MtpBenchmark, SpeedupsAreRatiosToTheBaseline) {
  RecordingGenerator generator;
  const auto results =
      run_mtp_benchmark(generator, {scenario("a", 8)},
                        {.variants = {MtpVariant::kAdaptive, MtpVariant::kBaseline}}, kNotCancelled);
  const auto& variants = results[0].variants;
  EXPECT_DOUBLE_EQ(*variants[0].decode_rate(), 4.0);
  EXPECT_DOUBLE_EQ(*variants[0].end_to_end_rate(), 8.0 / 3);
  EXPECT_DOUBLE_EQ(*results[0].decode_speedup(variants[0]), 2.0);
  EXPECT_DOUBLE_EQ(*results[0].end_to_end_speedup(variants[0]), 5.0 / 3);
  EXPECT_FALSE(results[0].decode_speedup(variants[1]));

  const auto alone =
      run_mtp_benchmark(generator, {scenario("a", 8)}, {.variants = {MtpVariant::kForced}}, kNotCancelled);
  EXPECT_FALSE(alone[0].decode_speedup(alone[0].variants[0]));
}

TEST(MtpVariants, ClearWhatTheProcessSaysAndSetTheirOwn) {
  AdmissionProcess process;
  process.speculation = Speculation::kOn;
  process.min_prompt_tokens = 500;
  process.width = 5;
  process.head_present = true;
  const MtpGeneratorOptions options{.forced_min_prompt_tokens = 3, .width = 6};

  const auto baseline = variant_process(process, MtpVariant::kBaseline, options);
  EXPECT_EQ(baseline.speculation, Speculation::kOff);
  EXPECT_FALSE(baseline.min_prompt_tokens);
  EXPECT_FALSE(baseline.width);
  EXPECT_TRUE(baseline.head_present);

  const auto adaptive = variant_process(process, MtpVariant::kAdaptive, options);
  EXPECT_EQ(adaptive.speculation, Speculation::kAuto);
  EXPECT_FALSE(adaptive.min_prompt_tokens);
  EXPECT_EQ(adaptive.width, 6);

  for (const MtpVariant variant : {MtpVariant::kForced, MtpVariant::kFixed}) {
    const auto forced = variant_process(process, variant, options);
    EXPECT_EQ(forced.speculation, Speculation::kOn);
    EXPECT_EQ(forced.min_prompt_tokens, 3);
    EXPECT_EQ(forced.width, 6);
  }
}

TEST(MtpVariants, NamesAreInverse) {
  for (const MtpVariant variant :
       {MtpVariant::kBaseline, MtpVariant::kAdaptive, MtpVariant::kForced, MtpVariant::kFixed})
    EXPECT_EQ(parse_mtp_variant(name_of(variant)), variant);
  EXPECT_EQ(policy_of(MtpVariant::kBaseline), "disabled");
  EXPECT_THROW(parse_mtp_variant("disabled"), Error);
}

class SyntheticGeneration : public ::testing::TestWithParam<const char*> {};

TEST_P(SyntheticGeneration, DraftsChangeNoId) {
  SyntheticModel synthetic({.geometry = GetParam(), .layers = 4});
  SyntheticMtpGenerator generator(synthetic, {}, {.measured = false});
  MtpScenario random = scenario({}, 24);
  random.prompt_ids = synthetic_prompt(synthetic, 3);
  const auto results = run_mtp_benchmark(
      generator, {random},
      {.variants = {MtpVariant::kBaseline, MtpVariant::kAdaptive, MtpVariant::kFixed}, .warmups = 0},
      kNotCancelled);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].outputs_equal());
  const MtpMeasurement& baseline = results[0].variants[0];
  const MtpMeasurement& fixed = results[0].variants[2];
  EXPECT_EQ(baseline.ids.size(), 24U);
  EXPECT_FALSE(baseline.expects_drafts);
  EXPECT_EQ(baseline.acceleration.statistics.drafted(), 0);
  EXPECT_TRUE(fixed.expects_drafts);
  EXPECT_GT(fixed.acceleration.statistics.drafted(), 24);
  EXPECT_EQ(fixed.acceleration.draft_history_tokens, 47);
}

INSTANTIATE_TEST_SUITE_P(Geometries, SyntheticGeneration,
                         ::testing::Values("small-dense", "small-moe", "small-flash"),
                         [](const auto& instance) {
                           const std::string name = instance.param;
                           return name == "small-moe" ? "Moe" : name == "small-dense" ? "Dense" : "Flash";
                         });

TEST(SyntheticGeneration, EndsWhenCancelled) {
  SyntheticModel synthetic({.geometry = "small-dense", .layers = 4});
  SyntheticMtpGenerator generator(synthetic, {}, {.measured = false});
  MtpScenario random = scenario({}, 8);
  random.prompt_ids = synthetic_prompt(synthetic, 1);
  const std::atomic<bool> cancelled{true};
  try {
    generator.generate(MtpVariant::kBaseline, random, 8, cancelled);
    FAIL() << "it was cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace mererun
