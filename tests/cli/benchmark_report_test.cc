// The reports of the benchmarks and of qualification: their fields, by name, and their text forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/mtp_report.h"
#include "cli/qualification_report.h"
#include "cli/verification_report.h"
#include "tests/support/temp_folder.h"

namespace mererun {

namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) {
    EXPECT_FALSE(value.is_null()) << name;
    names.push_back(name);
  }
  return names;
}

MtpMeasurement measurement(MtpVariant variant, double decode_seconds) {
  MtpMeasurement m{.variant = variant};
  m.prompt_tokens = 54;
  m.ids.assign(256, 7);
  m.timings = {.prefill_seconds = 0.5, .decode_seconds = decode_seconds, .first_token_seconds = 0.25};
  m.load_seconds = 0.25;
  m.output_sha256 = "3f7a12c09b1e55aa";
  m.memory_before = MemoryUsage{.resident = 10, .peak = 10};
  m.memory_after = MemoryUsage{.resident = 20, .peak = 30};
  m.peak_is_own = true;
  AccelerationReport& a = m.acceleration;
  if (variant == MtpVariant::kBaseline) {
    a.route = Route::kFinalTargetPipelined;
    a.admission.reason = AdmissionReason::kDisabled;
    return m;
  }
  m.expects_drafts = true;
  a.route = Route::kMtpSpeculative;
  a.admission.drafts = true;
  a.admission.reason = AdmissionReason::kDefault;
  a.admission.history = HistoryMode::kStreaming;
  a.admission.width = 4;
  a.draft_history_tokens = 53;
  a.draft_model = "qwen-mtp";
  a.cost_model = "measured";
  a.statistics = Statistics(3);
  a.statistics.record_first_token();
  a.statistics.record_round({.choice = {.depth = 3}, .accepted = 2, .emitted = 3});
  return m;
}

MtpReportContext mtp_context() {
  return {.model = "demo-moe-4bit",
          .backend = "cuda",
          .context_size = 8192,
          .options = {
              .variants = {MtpVariant::kBaseline, MtpVariant::kAdaptive}, .repetitions = 1, .warmups = 1}};
}

MtpScenario mtp_scenario() {
  MtpScenario scenario;
  scenario.prompt_repeat = 3;
  scenario.prompt = "na\xc3\xafve";
  scenario.decode_tokens = 256;
  return scenario;
}

MtpScenarioResult mtp_result() {
  return {.scenario = 0,
          .repetition = 1,
          .variants = {measurement(MtpVariant::kBaseline, 2), measurement(MtpVariant::kAdaptive, 1)}};
}

TEST(MtpReport, HasExactlyItsFields) {
  const Json out = mtp_scenario_json(mtp_context(), mtp_scenario(), mtp_result());
  EXPECT_THAT(keys(out),
              ElementsAre("contextSize", "decodeSpeedups", "endToEndSpeedups", "greedyOutputParity",
                          "outputParity", "promptCharacters", "promptRepeat", "promptSHA256", "repetition",
                          "requestedDecodeTokens", "temperature", "variants", "warmupTokens", "warmups"));
  EXPECT_EQ(out["promptCharacters"], 5);  // characters, not bytes
  EXPECT_THAT(keys(out["decodeSpeedups"]), ElementsAre("adaptive"));
  EXPECT_EQ(out["decodeSpeedups"]["adaptive"], 2.0);
  EXPECT_EQ(out["warmupTokens"], 16);

  const Json& baseline = out["variants"][0];
  EXPECT_THAT(
      keys(baseline),
      ElementsAre("acceleration", "admissionReason", "decodeSeconds", "decodeTokensPerSecond",
                  "deviceMemoryPeakBytes", "elapsedSeconds", "endToEndTokensPerSecond", "expectedMTPActive",
                  "firstTokenSeconds", "generatedTokens", "loadSeconds", "name", "outputSHA256", "policy",
                  "prefillSeconds", "prefillTokensPerSecond", "promptTokens", "residentMemoryAfterBytes",
                  "residentMemoryBeforeBytes", "ttftSeconds"));
  EXPECT_EQ(baseline["policy"], "disabled");
  EXPECT_EQ(baseline["elapsedSeconds"], 2.5);
  EXPECT_EQ(baseline["ttftSeconds"], 1.0);
  EXPECT_EQ(baseline["decodeTokensPerSecond"], 128.0);
  EXPECT_EQ(baseline["deviceMemoryPeakBytes"], 30);
  EXPECT_THAT(keys(baseline["acceleration"]), ElementsAre("admissionReason", "historyMode", "route"));
  EXPECT_THAT(keys(out["variants"][1]["acceleration"]),
              ElementsAre("acceptanceRate", "acceptedCounts", "acceptedDraftTokens", "admissionReason",
                          "blockSize", "costModel", "depthCounts", "draftHistoryTokens", "draftModel",
                          "draftedTokens", "historyMode", "probes", "rounds", "route", "serialRounds"));
}

TEST(MtpReport, LeavesOutWhatHasNoValue) {
  MtpScenario scenario = mtp_scenario();
  scenario.prompt_repeat.reset();
  scenario.temperature = 0.7;
  MtpScenarioResult result = mtp_result();
  result.variants.erase(result.variants.begin());  // no baseline
  MtpMeasurement& m = result.variants[0];
  m.timings = {};
  m.memory_before.reset();
  m.memory_after.reset();
  const Json out = mtp_scenario_json(mtp_context(), scenario, result);
  EXPECT_FALSE(out.contains("promptRepeat"));
  EXPECT_FALSE(out.contains("greedyOutputParity"));
  EXPECT_TRUE(out["decodeSpeedups"].empty());
  for (const char* name :
       {"prefillTokensPerSecond", "decodeTokensPerSecond", "endToEndTokensPerSecond",
        "residentMemoryBeforeBytes", "residentMemoryAfterBytes", "deviceMemoryPeakBytes"}) {
    EXPECT_FALSE(out["variants"][0].contains(name)) << name;
  }
}

TEST(MtpReport, ParityIsFalseForAnotherHash) {
  MtpScenarioResult result = mtp_result();
  result.variants[1].output_sha256 = "another";
  const Json out = mtp_scenario_json(mtp_context(), mtp_scenario(), result);
  EXPECT_EQ(out["outputParity"], false);
  EXPECT_EQ(out["greedyOutputParity"], false);
  EXPECT_THAT(mtp_scenario_text(mtp_context(), mtp_scenario(), result), HasSubstr("\n  parity no\n"));
}

// The first token is chosen from the prompt's logits.
TEST(MtpReport, OneTokenHasNoDecodeRate) {
  MtpScenarioResult result = mtp_result();
  for (MtpMeasurement& m : result.variants) m.ids.resize(1);
  const Json out = mtp_scenario_json(mtp_context(), mtp_scenario(), result);
  EXPECT_TRUE(out["decodeSpeedups"].empty());
  EXPECT_FALSE(out["endToEndSpeedups"].empty());
  for (const Json& variant : out["variants"]) EXPECT_FALSE(variant.contains("decodeTokensPerSecond"));
  EXPECT_THAT(mtp_scenario_text(mtp_context(), mtp_scenario(), result),
              AllOf(HasSubstr("no decode step timed"), Not(HasSubstr("tok/s")), Not(HasSubstr("x decode"))));
}

TEST(MtpReport, ParityOfNothingIsNoProof) {
  MtpScenarioResult result = mtp_result();
  result.variants[1].acceleration.statistics = Statistics(3);
  EXPECT_THAT(mtp_scenario_text(mtp_context(), mtp_scenario(), result),
              HasSubstr("\n  parity yes, but no round drafted: no draft was verified\n"));
  result.variants.pop_back();
  EXPECT_THAT(mtp_scenario_text(mtp_context(), mtp_scenario(), result),
              HasSubstr("\n  parity not shown: one variant has nothing to be compared with\n"));
}

TEST(MtpReport, HasItsTextForm) {
  EXPECT_EQ(
      mtp_scenario_text(mtp_context(), mtp_scenario(), mtp_result()),
      "demo-moe-4bit  cuda  prompt 54 tokens  decode 256  temperature 0  context 8192  repetition 1/1\n"
      "  baseline  final-target-pipelined  disabled  256 tok  prefill 0.500 s  decode 2.000 s  128.0 tok/s  "
      "ttft 1.00 s  sha256 3f7a12c09b1e\n"
      "  adaptive  mtp-speculative         default   256 tok  prefill 0.500 s  decode 1.000 s  256.0 tok/s  "
      "ttft 1.00 s  sha256 3f7a12c09b1e  rounds 1 serial 0 drafted 3 accepted 2 (66.7%) history 53  2.00x "
      "decode 1.67x end-to-end\n"
      "  parity yes\n");
  MtpReportContext synthetic = mtp_context();
  synthetic.is_synthetic = true;
  EXPECT_THAT(mtp_scenario_text(synthetic, mtp_scenario(), mtp_result()), HasSubstr("  weights synthetic\n"));
}

VerificationRow verification_row() {
  VerificationRow row{.width = 8, .trial = 1};
  row.verified_tokens = 128;
  row.passes = 16;
  row.seconds = 2;
  row.greedy_parity = row.logits_parity = true;
  row.active_memory_bytes = 100;
  row.cache_memory_bytes = 10;
  return row;
}

TEST(VerificationReport, HasExactlyItsFields) {
  const VerificationReportContext context{.model = "demo-dense-4bit", .backend = "cpu", .device = {}};
  EXPECT_THAT(keys(verification_row_json(context, verification_row())),
              ElementsAre("activeMemoryBytes", "backend", "cacheMemoryBytes", "device", "greedyOutputParity",
                          "logitsParity", "trial", "verificationPasses", "verificationSeconds",
                          "verifiedTokens", "verifiedTokensPerSecond", "width"));
  EXPECT_EQ(verification_row_text(context, verification_row()),
            "width=8 trial=1 passes=16 verify_tps=64.0 parity=yes logits=yes\n");
  EXPECT_THAT(verification_heading(context), HasSubstr("capacity, not generation speed"));
}

TEST(VerificationReport, AMismatchVoidsTheRate) {
  const VerificationReportContext context{.model = "m", .backend = "cpu", .device = {}};
  VerificationRow row = verification_row();
  row.logits_parity = false;
  row.first_mismatch = VerificationMismatch{.row = 3, .expected = 5, .got = 6};
  row.certified = false;
  const Json out = verification_row_json(context, row);
  EXPECT_FALSE(out.contains("verifiedTokensPerSecond"));
  EXPECT_EQ(out["firstMismatch"], (Json{{"row", 3}, {"expected", 5}, {"got", 6}}));
  EXPECT_EQ(out["certified"], false);
  EXPECT_THAT(
      verification_row_text(context, row),
      HasSubstr("verify_tps=void parity=yes logits=no certified=no first_mismatch=row:3,expected:5,got:6"));
}

TEST(VerificationReport, SyntheticRowsSayWhatTheyAre) {
  VerificationOracle oracle;
  oracle.experts = {{{0, 1}, {2, 3}}};
  const VerificationReportContext context{.model = "synthetic:small-moe",
                                          .backend = "cpu",
                                          .device = {},
                                          .is_synthetic = true,
                                          .oracle = &oracle};
  const Json out = verification_row_json(context, verification_row());
  EXPECT_EQ(out["weights"], "synthetic");
  EXPECT_EQ(out["model"], "synthetic:small-moe");
  EXPECT_EQ(out["distinctExpertsPerBlock"], 4.0);
  EXPECT_THAT(verification_row_text(context, verification_row()),
              HasSubstr(" weights=synthetic experts_per_block=4.0\n"));
}

TEST(QualificationReport, HasExactlyItsFields) {
  QualificationReport report;
  report.steps.push_back({.name = "cold", .pass = true, .details = {{"cachedTokens", std::int64_t{0}}}});
  report.steps.push_back(
      {.name = "restart", .pass = std::nullopt, .details = {{"notRun", std::string("a b")}}});
  const QualificationContext context{
      .model = "m",
      .fingerprint = "f",
      .build = {.version = "1", .commit = "c", .binary_sha256 = "d"},
      .backend = "cpu",
      .device = {.name = "n", .driver = "d", .instruction_set = "avx2", .memory_bytes = 1, .clock_mhz = 2.0}};
  Json out = qualification_json(context, report);
  EXPECT_THAT(keys(out), ElementsAre("backend", "build", "contractVersion", "device", "fingerprint", "model",
                                     "pass", "steps"));
  EXPECT_THAT(keys(out["build"]), ElementsAre("binarySHA256", "commit", "version"));
  EXPECT_THAT(keys(out["device"]),
              ElementsAre("clockMHz", "driver", "instructionSet", "memoryBytes", "name"));
  EXPECT_THAT(keys(out["steps"][0]), ElementsAre("details", "name", "pass"));
  EXPECT_THAT(keys(out["steps"][1]), ElementsAre("details", "name"));
  EXPECT_EQ(out["steps"][0]["details"]["cachedTokens"], 0);
  EXPECT_EQ(out["pass"], true);
  EXPECT_EQ(qualification_step_text(report.steps[1]), "restart                 not run  notRun=\"a b\"\n");

  report.steps[0].pass = false;
  EXPECT_EQ(qualification_json(context, report)["pass"], false);
  EXPECT_THAT(qualification_step_text(report.steps[0]), HasSubstr("FAIL  cachedTokens=0"));
}

TEST(QualificationReport, AFolderReceivesTheNamedReceipt) {
  const testing::TempFolder folder;
  EXPECT_EQ(receipt_path(folder.path(), "demo"), folder / "demo.qualification.json");
  EXPECT_EQ(receipt_path(folder / "own.json", "demo"), folder / "own.json");
}

}  // namespace

}  // namespace mererun
