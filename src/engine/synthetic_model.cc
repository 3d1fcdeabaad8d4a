#include "engine/synthetic_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "decode/generation.h"
#include "decode/prefill.h"
#include "engine/calibration.h"
#include "kernels/cpu/cpu_isa.h"

namespace mererun {
namespace {

constexpr std::uint64_t kSamplingSeed = 1;

/// Counts choices and ends on the budget.
class CountingSink final : public ChoiceSink {
 public:
  explicit CountingSink(int max_tokens) : left_(max_tokens) {}
  ChoiceOutcome on_choice(const TargetChoice&) override {
    --left_;
    return {.is_emitted = true, .finish = left_ == 0 ? std::optional(FinishReason::kLength) : std::nullopt};
  }

 private:
  int left_;
};

void check(const std::atomic<bool>& cancelled) {
  if (cancelled.load(std::memory_order_relaxed)) throw Error(ErrorCode::kCancelled, "benchmark: interrupted");
}

}  // namespace

SyntheticModel::SyntheticModel(const SyntheticOptions& options, const LoadProgress& progress)
    : geometry_(make_synthetic_geometry(options.geometry, options.layers, options.table_bytes)),
      seed_(options.seed) {
  const Stopwatch watch;
  // Both refuse before anything is made.
  choose_backend(options.backend, options.device);
  cpu::select_kernels(options.cpu_isa);
  SyntheticWeights weights = make_synthetic_weights(geometry_.config, seed_, options.cancelled);
  memory_ = std::move(weights.memory);
  ModelLimits limits;
  limits.max_rows = options.max_rows;
  auto ops = make_backend_for(weights.host, {.context = kLeastContext, .prefill_chunk = options.max_rows},
                              options.backend, options.device,
                              {.threads = options.threads, .isa = options.cpu_isa, .on_converted = {}});
  model_ = std::make_unique<Model>(std::move(ops), std::move(weights.host), limits, progress);
  load_seconds_ = watch.seconds();
}

std::string SyntheticModel::fingerprint() const {
  const auto& flash = geometry_.config.flash;
  const std::string table = flash ? fmt::format(" table base {}", flash->ngram_vocab_base) : std::string();
  return sha256_hex(fmt::format("synthetic {} layers {} seed {} contract {}{}", geometry_.name,
                                geometry_.config.layers, seed_, kNumericContractVersion, table));
}

std::vector<TokenId> SyntheticModel::random_ids(int n, std::uint64_t stream) const {
  std::vector<TokenId> ids;
  const auto vocabulary = static_cast<std::uint64_t>(geometry_.config.vocabulary);
  for (int i = 0; i < n; ++i)
    ids.push_back(static_cast<TokenId>(synthetic_bits(seed_ + 100 + stream, static_cast<std::uint64_t>(i)) %
                                       vocabulary));
  return ids;
}

std::vector<TokenId> synthetic_prompt(const SyntheticModel& synthetic, int lines) {
  return synthetic.random_ids(synthetic_prompt_tokens(lines), 0);
}

std::string ids_text(const std::vector<TokenId>& ids) { return fmt::format("{}", fmt::join(ids, " ")); }

Admission SyntheticMtpGenerator::admit_variant(MtpVariant variant, int prompt_tokens) const {
  const SyntheticGeometry& g = synthetic_.geometry();
  const AdmissionTraits traits{.default_on = true,
                               .is_qualified = false,
                               .uses_moe = g.config.is_moe(),
                               .is_flash_next = g.config.family == Family::kFlashNext,
                               .min_prompt_tokens = 0,
                               .default_width = g.width,
                               .width_cap = g.width_cap};
  AdmissionProcess process;
  process.head_present = true;
  process.backend_exact = true;
  return admit(traits, variant_process(process, variant, options_),
               {.speculation = Speculation::kAuto,
                .width = std::nullopt,
                .num_prompt_tokens = prompt_tokens,
                .context_limit = options_.context_size,
                .has_image = false});
}

CostModel SyntheticMtpGenerator::cost_model(VerifyLog& log, int width) {
  if (!cost_.measured) return FixedCost{cost_.ratio};
  if (!times_ || times_->max_depth() < width - 1)
    times_ = std::make_shared<RoundTimes>(measure_cost(synthetic_.model(), log, width).cost);
  return times_;
}

/// What a drafting generation needs; empty for one that does not draft.
struct SyntheticMtpGenerator::Drafting {
  std::optional<VerifyLog> log;
  std::optional<MtpDrafter> drafter;
  std::optional<DepthPolicy> policy;
};

void SyntheticMtpGenerator::prepare(MtpVariant variant, int width, Drafting& drafting) {
  Model& model = synthetic_.model();
  drafting.log.emplace(model.new_verify_log(width));
  drafting.drafter.emplace(model);
  drafting.policy.emplace(DepthPolicyOptions{
      .max_depth = width - 1,
      .cost = variant == MtpVariant::kFixed ? CostModel{FullDepth{}} : cost_model(*drafting.log, width)});
}

void SyntheticMtpGenerator::prefill(SequenceState& state, const MtpScenario& scenario,
                                    const std::atomic<bool>& cancelled, MtpMeasurement& measured) {
  const Stopwatch watch;
  Model& model = synthetic_.model();
  AccelerationReport& report = measured.acceleration;
  PrefillOptions options;
  options.chunk = model.limits().max_rows;
  options.history = report.admission.history;
  Prefill prefill(model, state, scenario.prompt_ids, options);
  while (!prefill.is_done()) {
    check(cancelled);
    prefill.step();
  }
  model.ops().synchronize();
  if (report.admission.drafts && state.history())
    report.draft_history_tokens = state.history()->transitions();
  measured.timings.prefill_seconds = watch.seconds();
}

void SyntheticMtpGenerator::decode(SequenceState& state, const MtpScenario& scenario, int tokens,
                                   Drafting& drafting, const std::atomic<bool>& cancelled,
                                   MtpMeasurement& measured) {
  const Stopwatch watch;
  SamplingOptions sampling;
  sampling.temperature = scenario.temperature;
  sampling.top_p = options_.top_p;
  sampling.seed = kSamplingSeed;
  Sampler sampler(sampling, scenario.prompt_ids);
  CountingSink sink(tokens);
  GenerationParts parts{.model = synthetic_.model(), .state = state, .sampler = sampler, .sink = sink};
  if (drafting.drafter) {
    parts.log = &*drafting.log;
    parts.drafter = &*drafting.drafter;
    parts.policy = &*drafting.policy;
  }
  SpeculationProfile profile;
  if (options_.profiles) parts.profile = &profile;
  Generation generation(parts, {.max_tokens = tokens, .context_limit = options_.context_size});
  generation.begin();
  measured.timings.first_token_seconds = watch.seconds();
  while (!generation.is_finished()) {
    check(cancelled);
    generation.round();
  }
  measured.timings.decode_seconds = watch.seconds();
  measured.ids = generation.tokens();
  measured.acceleration.statistics = generation.statistics();
  if (options_.profiles) measured.acceleration.profile = std::move(profile);
}

MtpMeasurement SyntheticMtpGenerator::generate(MtpVariant variant, const MtpScenario& scenario, int tokens,
                                               const std::atomic<bool>& cancelled) {
  MtpMeasurement measured{.variant = variant};
  measured.prompt_tokens = static_cast<int>(scenario.prompt_ids.size());
  measured.load_seconds = synthetic_.load_seconds();
  AccelerationReport& report = measured.acceleration;
  report.admission = admit_variant(variant, measured.prompt_tokens);
  report.route = report.admission.drafts ? Route::kMtpSpeculative : Route::kFinalTargetPipelined;
  report.draft_model =
      synthetic_.geometry().config.family == Family::kFlashNext ? "qwen4-exp-mtp" : "qwen-mtp";
  measured.expects_drafts = report.admission.drafts;
  Drafting drafting;
  if (report.admission.drafts) {
    prepare(variant, report.admission.width, drafting);
    report.cost_model = name_of(drafting.policy->cost());
  }

  measured.peak_is_own = reset_peak_memory();
  measured.memory_before = memory_usage();
  SequenceState state = synthetic_.model().new_sequence();
  prefill(state, scenario, cancelled, measured);
  decode(state, scenario, tokens, drafting, cancelled, measured);
  measured.memory_after = memory_usage();
  measured.output_sha256 = sha256_hex(ids_text(measured.ids));
  return measured;
}

}  // namespace mererun
