#include "engine/benchmark_mtp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "engine/chat_encoder.h"
#include "engine/run.h"

namespace mererun {
namespace {

constexpr std::uint64_t kSeed = 1;

struct VariantNames {
  MtpVariant variant;
  std::string_view name;
  std::string_view policy;
};
constexpr std::array<VariantNames, 4> kNames = {{{MtpVariant::kBaseline, "baseline", "disabled"},
                                                 {MtpVariant::kAdaptive, "adaptive", "adaptive"},
                                                 {MtpVariant::kForced, "forced", "forced"},
                                                 {MtpVariant::kFixed, "fixed", "fixed"}}};

const VariantNames& names(MtpVariant variant) {
  return *std::find_if(kNames.begin(), kNames.end(), [&](const auto& n) { return n.variant == variant; });
}

std::optional<double> rate(double count, double seconds) {
  return seconds > 0 && count > 0 ? std::optional<double>(count / seconds) : std::nullopt;
}

std::optional<double> ratio(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional<double>(*a / *b) : std::nullopt;
}

using Rate = std::optional<double> (MtpMeasurement::*)() const;

std::optional<double> speedup(const MtpScenarioResult& result, const MtpMeasurement& variant, Rate rate_of) {
  if (variant.variant == MtpVariant::kBaseline) return std::nullopt;
  const auto baseline =
      std::find_if(result.variants.begin(), result.variants.end(),
                   [](const MtpMeasurement& m) { return m.variant == MtpVariant::kBaseline; });
  if (baseline == result.variants.end()) return std::nullopt;
  return ratio((variant.*rate_of)(), ((*baseline).*rate_of)());
}

}  // namespace

std::string_view name_of(MtpVariant variant) { return names(variant).name; }
std::string_view policy_of(MtpVariant variant) { return names(variant).policy; }

MtpVariant parse_mtp_variant(std::string_view name) {
  for (const VariantNames& n : kNames) {
    if (n.name == name) return n.variant;
  }
  fail_expected(ErrorCode::kInvalidArgument, "variant", "baseline, adaptive, forced or fixed",
                fmt::format("'{}'", name));
}

std::optional<double> MtpMeasurement::prefill_rate() const {
  return rate(prompt_tokens, timings.prefill_seconds);
}
std::optional<double> MtpMeasurement::decode_rate() const {
  return timings.decode_rate(static_cast<std::int64_t>(ids.size()));
}
std::optional<double> MtpMeasurement::end_to_end_rate() const {
  return rate(static_cast<double>(ids.size()), elapsed_seconds());
}

bool MtpScenarioResult::has_drafted() const {
  return std::any_of(variants.begin(), variants.end(),
                     [](const MtpMeasurement& m) { return m.acceleration.statistics.rounds() > 0; });
}

bool MtpScenarioResult::outputs_equal() const {
  return std::all_of(variants.begin(), variants.end(), [&](const MtpMeasurement& m) {
    return m.ids == variants.front().ids && m.output_sha256 == variants.front().output_sha256;
  });
}

std::optional<double> MtpScenarioResult::decode_speedup(const MtpMeasurement& variant) const {
  return speedup(*this, variant, &MtpMeasurement::decode_rate);
}
std::optional<double> MtpScenarioResult::end_to_end_speedup(const MtpMeasurement& variant) const {
  return speedup(*this, variant, &MtpMeasurement::end_to_end_rate);
}

AdmissionProcess variant_process(AdmissionProcess process, MtpVariant variant,
                                 const MtpGeneratorOptions& options) {
  process.speculation = Speculation::kAuto;
  process.min_prompt_tokens.reset();
  process.width.reset();
  if (variant == MtpVariant::kBaseline) {
    process.speculation = Speculation::kOff;
    return process;
  }
  process.width = options.width;
  if (variant == MtpVariant::kAdaptive) return process;
  process.speculation = Speculation::kOn;
  process.min_prompt_tokens = options.forced_min_prompt_tokens;
  return process;
}

MtpMeasurement EngineMtpGenerator::generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                                            const std::atomic<bool>& cancelled) {
  const AdmissionProcess process = variant_process(engine_.admission_process(), variant, options_);
  engine_.set_process(process.speculation, process.min_prompt_tokens, process.width);

  GenerateRequest request;
  request.chat = plain_chat({{"user", scenario.prompt}});
  request.sampling.temperature = scenario.temperature;
  request.sampling.top_p = options_.top_p;
  request.sampling.seed = kSeed;
  request.max_tokens = tokens;
  request.context_limit = options_.context_size;
  request.ignores_eos = true;
  request.full_depth = variant == MtpVariant::kFixed;
  request.uses_prefix_cache = false;
  request.profiles = options_.profiles;

  MtpMeasurement measured{.variant = variant};
  measured.peak_is_own = reset_peak_memory();
  measured.memory_before = memory_usage();
  Run run(engine_, std::move(request));
  measured.expects_drafts = run.admission().drafts;
  while (!run.is_finished()) {
    if (cancelled.load(std::memory_order_relaxed))
      throw Error(ErrorCode::kCancelled, "benchmark: interrupted");
    run.step();
  }
  GenerateResult result = run.take_result();
  measured.memory_after = memory_usage();
  measured.prompt_tokens = static_cast<int>(result.prompt_ids.size());
  measured.output_sha256 = result.output_sha256();
  measured.ids = std::move(result.ids);
  measured.timings = result.timings;
  measured.load_seconds = engine_.load_seconds();
  measured.acceleration = std::move(result.acceleration);
  return measured;
}

std::vector<MtpScenarioResult> run_mtp_benchmark(
    MtpGenerator& generator, const std::vector<MtpScenario>& scenarios, const MtpBenchmarkOptions& options,
    const std::atomic<bool>& cancelled, const std::function<void(const MtpScenarioResult&)>& on_result) {
  std::vector<MtpScenarioResult> results;
  for (std::size_t index = 0; index < scenarios.size(); ++index) {
    const MtpScenario& scenario = scenarios[index];
    const int warmup_tokens = std::min(options.warmup_tokens, scenario.decode_tokens);
    for (int repetition = 1; repetition <= options.repetitions; ++repetition) {
      MtpScenarioResult result{.scenario = index, .repetition = repetition, .variants = {}};
      for (const MtpVariant variant : options.variants) {
        for (int i = 0; i < options.warmups; ++i)
          generator.generate(variant, scenario, warmup_tokens, cancelled);
        result.variants.push_back(generator.generate(variant, scenario, scenario.decode_tokens, cancelled));
      }
      if (on_result) on_result(result);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace mererun
