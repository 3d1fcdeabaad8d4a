#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/fingerprint.h"
#include "engine/backend.h"
#include "engine/qualification_receipt.h"
#include "grammar/grammar_vocabulary.h"
#include "kernels/cpu/cpu_isa.h"

namespace mererun {
namespace {

AdmissionTraits admission_traits_of(const ModelTraits& traits, const ModelConfig& config) {
  return {.default_on = traits.mtp == MtpDefault::kOn,
          .is_qualified = false,
          .uses_moe = config.is_moe(),
          .is_flash_next = config.family == Family::kFlashNext,
          .min_prompt_tokens = traits.prompt_threshold,
          .default_width = traits.width,
          .width_cap = traits.width_cap};
}

}  // namespace

Engine::Engine(EngineOptions options, ResolvedModel resolved)
    : options_(std::move(options)),
      resolved_(std::move(resolved)),
      prefix_cache_(options_.prefix_cache_bytes) {}

Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const EngineOptions& options, const LoadProgress& progress) {
  const Stopwatch watch;
  if (!options.prefix_cache_dir.empty()) require_disk_store();  // known before weights are read
  auto engine =
      std::unique_ptr<Engine>(new Engine(options, resolve_model(options.model, options.surroundings)));
  const ResolvedModel& resolved = engine->resolved_;
  // Both refuse before anything is read.
  choose_backend(options.backend, options.device);
  cpu::select_kernels(options.cpu_isa);
  engine->tokenizer_ = Tokenizer::load(resolved.folder / "tokenizer.json");
  try {
    engine->template_ = load_chat_template(resolved.folder);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;  // a base model may have none
  }
  engine->admission_traits_ = admission_traits_of(resolved.traits, resolved.config);
  engine->process_ = options.process;

  const auto receipt =
      find_passing_receipt(resolved.folder, resolved.id, options.surroundings, engine->resolved_.warnings);
  engine->admission_traits_.is_qualified = receipt.has_value();  // confirmed below, once the files are open
  LoadOptions load = resolved.load_options();
  if (!options.mtp_root.empty()) load.mtp_root = options.mtp_root;
  if (options.requires_draft_head) {
    load.head = LoadOptions::Head::kRequire;
  } else if (!needs_draft_head(engine->admission_traits_, options.process.speculation)) {
    load.head = LoadOptions::Head::kSkip;
  }
  ModelLimits limits;
  limits.max_rows = options.prefill_chunk;
  HostWeights host = load_host_weights(resolved.folder, load);
  const BackendNeed need{
      .context = std::min(options.context_limit.value_or(resolved.traits.context), host.config.max_positions),
      .prefill_chunk = options.prefill_chunk,
      .verify_width = resolved.traits.width};
  auto ops = make_backend_for(host, need, options.backend, options.device,
                              {.threads = options.threads, .isa = options.cpu_isa, .on_converted = {}});
  engine->model_ = std::make_unique<Model>(std::move(ops), std::move(host), limits, progress);

  const auto& checkpoints = engine->model_->host().checkpoints;
  engine->fingerprint_ =
      mererun::fingerprint(*checkpoints.front(), checkpoints.size() > 1 ? checkpoints[1].get() : nullptr);
  if (receipt) engine->confirm_receipt(*receipt);
  engine->process_.head_present = engine->model_->head() != nullptr;
  if (options.process.speculation == Speculation::kOn && !engine->process_.head_present)
    engine->resolved_.warnings.push_back("speculation was asked for, but no complete draft head is loaded");
  engine->process_.backend_exact = true;
  const int most = engine->model_->config().max_positions;
  if (options.context_limit > most) {
    engine->resolved_.warnings.push_back(
        fmt::format("context size: expected at most {} (max_position_embeddings), got {}; {} holds", most,
                    *options.context_limit, most));
  }
  engine->context_limit_ = std::min(options.context_limit.value_or(resolved.traits.context), most);
  engine->eos_ids_ = engine->model_->config().eos_ids;
  if (engine->model_->head() != nullptr) engine->drafter_.emplace(*engine->model_);
  engine->attach_disk_store();
  engine->load_seconds_ = watch.seconds();
  return engine;
}

void Engine::confirm_receipt(const QualificationReceipt& receipt) {
  const bool counts = receipt.counts_for(fingerprint_, backend_name());
  admission_traits_.is_qualified = counts;
  qualification_ = counts ? receipt.path.string() : "none";
  if (counts) return;
  resolved_.warnings.push_back(
      fmt::format("{}: expected fingerprint {} on backend {}, got {} on {}; the receipt is ignored",
                  receipt.path.string(), fingerprint_, backend_name(), receipt.fingerprint, receipt.backend));
}

/// What is stored for the trunk serves processes with and without a draft head; histories are the head's own.
void Engine::attach_disk_store() {
  if (options_.prefix_cache_dir.empty() || !prefix_cache_.is_enabled()) return;
  const std::string trunk = mererun::fingerprint(*model_->host().checkpoints.front(), nullptr);
  DiskStoreOptions store{.folder = options_.prefix_cache_dir,
                         .budget_bytes = options_.prefix_cache_disk_bytes,
                         .model = fmt::format("{}-v{}", trunk, kNumericContractVersion)};
  if (model_->head() != nullptr) store.head = fmt::format("{}-v{}", fingerprint_, kNumericContractVersion);
  auto opened = open_disk_store(model_->ops(), model_->geometry(), model_->pools(), store);
  disk_store_ = opened.get();
  prefix_cache_.attach(std::move(opened));
}

void Engine::set_process(Speculation speculation, std::optional<int> min_prompt_tokens,
                         std::optional<int> width) {
  process_.speculation = speculation;
  process_.min_prompt_tokens = min_prompt_tokens;
  process_.width = width;
}

VerifyLog& Engine::verify_log(int width) {
  if (!verify_log_ || verify_log_->max_width() < width) verify_log_.emplace(model_->new_verify_log(width));
  return *verify_log_;
}

CostModel Engine::cost_model(int width, SequenceState& state) {
  constexpr unsigned kShortText = 1024;
  if (!options_.cost.measured) return FixedCost{options_.cost.ratio};
  if (!measured_cost_ || static_cast<int>(measured_cost_->cost.verify.size()) < width) {
    measured_cost_ = measure_cost(*model_, verify_log(width), width);
    round_times_.clear();
  }
  const auto length = static_cast<unsigned>(state.length());
  const int widest = static_cast<int>(measured_cost_->cost.verify.size());
  const bool has_room = state.length() + widest <= model_->config().max_positions;
  const bool is_short = length < kShortText || !state.history() || !has_room;
  auto& times = round_times_[is_short ? 0 : std::bit_width(length)];
  if (!times) {
    times = std::make_shared<RoundTimes>(
        is_short ? measured_cost_->cost
                 : measure_cost_behind(*model_, state, verify_log(widest), *measured_cost_));
  }
  return times;
}

const std::shared_ptr<const GrammarVocabulary>& Engine::grammar_vocabulary() const {
  std::call_once(grammar_vocabulary_once_,
                 [this] { grammar_vocabulary_ = GrammarVocabulary::build(*tokenizer_, eos_ids_); });
  return grammar_vocabulary_;
}

std::string Engine::render(const ChatPrompt& prompt, bool add_generation_prompt) const {
  if (!template_) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("{}: expected a chat template, got a checkpoint without one", resolved_.folder.string()),
        "send a raw prompt instead of messages");
  }
  return template_->render_chat({.messages = prompt.messages.get(),
                                 .tools = prompt.tools.get(),
                                 .arguments = prompt.template_arguments.get(),
                                 .add_generation_prompt = add_generation_prompt});
}

}  // namespace mererun
