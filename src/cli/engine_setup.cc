#include "cli/engine_setup.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/environment.h"
#include "cli/interrupts.h"
#include "engine/cpu_isa.h"
#include "engine/sampling_defaults.h"
#include "engine/synthetic_model.h"

namespace mererun {
namespace {

constexpr const char* kDefaultModel = "demo-dense-4bit";

AdmissionProcess admission_process(const CommonOptions& options, const Overrides& overrides) {
  AdmissionProcess process;
  if (options.drafting.speculation)
    process.speculation = *options.drafting.speculation ? Speculation::kOn : Speculation::kOff;
  process.min_prompt_tokens = overrides.min_prompt_tokens;
  if (options.drafting.mtp_block_size) process.width = static_cast<int>(*options.drafting.mtp_block_size);
  process.stream_history = overrides.stream_history;
  return process;
}

CostChoice cost_choice(const DraftingFlags& flags) {
  return {.measured = flags.mtp_cost == MtpCost::kMeasured,
          .ratio = flags.mtp_cost_ratio.value_or(FixedCost::kDefaultRatio)};
}

}  // namespace

ModelSurroundings model_surroundings(const ProgramContext& context) {
  const Environment& environment = context.environment;
  return {.models = environment.value("MERERUN_MODELS"),
          .data_home = environment.value("XDG_DATA_HOME"),
          .home = environment.value("HOME"),
          .bundled = bundled_models(context.program_path)};
}

EngineOptions engine_options(const CommonOptions& options, const ProgramContext& context) {
  const Overrides& overrides = context.environment.overrides;
  EngineOptions out;
  out.model.root = options.model.model_root.value_or("");
  out.model.model = options.model.model.value_or(out.model.root.empty() ? kDefaultModel : "");
  out.surroundings = model_surroundings(context);
  out.mtp_root = options.model.mtp_root.value_or("");
  out.backend = parse_backend(options.device.backend);
  out.device = static_cast<int>(options.device.device);
  out.threads = usable_threads(static_cast<int>(options.device.threads.value_or(0)));
  out.cpu_isa = parse_cpu_isa(options.device.cpu_isa);
  out.process = admission_process(options, overrides);
  out.cost = cost_choice(options.drafting);
  out.prefill_chunk = overrides.prefill_chunk_tokens.value_or(out.prefill_chunk);
  return out;
}

std::size_t prefix_cache_bytes(const ProgramContext& context, std::size_t otherwise) {
  return static_cast<std::size_t>(context.environment.overrides.prefix_cache_bytes.value_or(otherwise));
}

ProgressDisplay::Mode progress_mode(const CommonOptions& options, const ProgramContext& context) {
  if (options.output.quiet) return ProgressDisplay::Mode::kQuiet;
  return context.terminal.is_stderr ? ProgressDisplay::Mode::kBar : ProgressDisplay::Mode::kLog;
}

bool show_bytes(ProgressDisplay& display, const ProgramContext& context, std::string_view phase,
                std::uint64_t done, std::uint64_t total) {
  display.update({.phase = std::string(phase),
                  .unit = ProgressUnit::kBytes,
                  .done = static_cast<std::int64_t>(done),
                  .total = static_cast<std::int64_t>(total)});
  return !context.interrupts.requested();
}

SyntheticOptions synthetic_options(const SyntheticFlags& flags, const EngineOptions& settings,
                                   const ProgramContext& context) {
  SyntheticOptions options{.geometry = *flags.geometry,
                           .layers = {},
                           .table_bytes = static_cast<std::uint64_t>(flags.table_mib.value_or(0)) << 20,
                           .backend = settings.backend,
                           .device = settings.device,
                           .threads = settings.threads,
                           .cpu_isa = settings.cpu_isa,
                           .cancelled = &context.interrupts.flag()};
  if (flags.layers) options.layers = static_cast<int>(*flags.layers);
  return options;
}

std::unique_ptr<Engine> load_engine(const EngineOptions& options, const CommonOptions& common,
                                    const ProgramContext& context) {
  ProgressDisplay display(progress_mode(common, context), context.terminal.stderr_columns);
  std::int64_t bytes = 0;
  auto engine = Engine::load(options, [&](const LoadState& state) {
    bytes = state.total_bytes;
    display.update({.phase = "load", .unit = ProgressUnit::kBytes, .done = state.done_bytes, .total = bytes});
  });
  display.finish();
  for (const std::string& warning : engine->model().host().report.warnings)
    log(LogLevel::kWarn, "load", "warning=\"{}\"", warning);
  for (const std::string& warning : engine->resolved().warnings)
    log(LogLevel::kWarn, "resolve", "warning=\"{}\"", warning);
  return engine;
}

SamplingOptions sampling_options(const SamplingFlags& flags, const ModelConfig& config) {
  SamplingOptions out = sampling_defaults(config);
  out.temperature = flags.temperature.value_or(out.temperature);
  out.top_p = flags.top_p.value_or(out.top_p);
  out.top_k = static_cast<int>(flags.top_k.value_or(out.top_k));
  out.min_p = flags.min_p.value_or(out.min_p);
  out.presence_penalty = flags.presence_penalty;
  out.frequency_penalty = flags.frequency_penalty;
  out.repetition_penalty = flags.repetition_penalty;
  out.seed = flags.seed.value_or(random_seed());
  return out;
}

}  // namespace mererun
