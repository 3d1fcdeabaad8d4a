#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/environment.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/mtp_report.h"
#include "cli/prompt.h"
#include "cli/report_parts.h"
#include "engine/benchmark_mtp.h"
#include "engine/chat_encoder.h"
#include "engine/retrieval_prompt.h"
#include "engine/synthetic_model.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

constexpr int kSchemaVersion = 1;

/// Every variant sets drafting itself, and prompts are the command's own.
constexpr std::string_view kUnread[] = {"MERERUN_API_KEY", "MERERUN_Q35_MTP_SPECULATION",
                                        "MERERUN_Q35_MTP_MIN_PROMPT_TOKENS", "MERERUN_Q35_MTP_BLOCK_SIZE",
                                        "MERERUN_Q35_DEBUG_PROMPT_TOKENS"};

/// The parts of a report that depend on where the weights came from.
struct Subject {
  std::unique_ptr<MtpGenerator> generator;
  std::vector<MtpScenario> scenarios;
  std::string model;
  std::string fingerprint;
  Json sources = Json::object();
  std::string backend;
  Family family{};
  DeviceInfo device;
  int context_size = 0;  // what holds
  std::optional<int> synthetic_layers;
  // Keep alive what the generator runs on.
  std::unique_ptr<Engine> engine;
  std::unique_ptr<SyntheticModel> synthetic;
};

/// The prompts of the matrix, without lengths and temperatures.
std::vector<MtpScenario> prompts_of(const BenchmarkMtpOptions& options) {
  if (options.prompt || options.prompt_file) {
    const std::string text =
        options.prompt ? prompt_text("--prompt", *options.prompt) : prompt_file_text(*options.prompt_file);
    return {{.prompt_repeat = std::nullopt, .prompt = text, .prompt_ids = {}}};
  }
  std::vector<MtpScenario> prompts;
  for (const std::int64_t lines : options.prompt_repeats) {
    const int n = static_cast<int>(lines);
    prompts.push_back({.prompt_repeat = n,
                       .prompt = options.synthetic.geometry ? std::string() : numbered_prompt(n),
                       .prompt_ids = {}});
  }
  return prompts;
}

std::vector<MtpScenario> matrix(const BenchmarkMtpOptions& options, const std::vector<MtpScenario>& prompts) {
  std::vector<MtpScenario> scenarios;
  for (const MtpScenario& prompt : prompts) {
    for (const std::int64_t tokens : options.decode_tokens) {
      for (const double temperature : options.temperatures) {
        MtpScenario scenario = prompt;
        scenario.decode_tokens = static_cast<int>(tokens);
        scenario.temperature = temperature;
        scenarios.push_back(std::move(scenario));
      }
    }
  }
  return scenarios;
}

/// `context`: what was asked for, or less where the model has no more.
void require_room(const BenchmarkMtpOptions& options, std::int64_t context, std::int64_t prompt_tokens) {
  const std::int64_t most = *std::max_element(options.decode_tokens.begin(), options.decode_tokens.end());
  if (prompt_tokens + most > context) {
    fail_expected(ErrorCode::kInvalidArgument, "--context-size",
                  fmt::format("at least {} prompt tokens + {} decode tokens", prompt_tokens, most),
                  context < options.context_size ? fmt::format("{}, the model's most", context)
                                                 : fmt::format("{}", context));
  }
}

std::vector<MtpVariant> variants_of(const BenchmarkMtpOptions& options) {
  std::vector<MtpVariant> variants;
  for (const std::string& name : options.variants) variants.push_back(parse_mtp_variant(name));
  return variants;
}

bool any_drafts(const BenchmarkMtpOptions& options) {
  return std::any_of(options.variants.begin(), options.variants.end(), [](const std::string& name) {
    return parse_mtp_variant(name) != MtpVariant::kBaseline;
  });
}

MtpGeneratorOptions generator_options(const BenchmarkMtpOptions& options, const ProgramContext& context) {
  MtpGeneratorOptions out{.top_p = options.top_p,
                          .context_size = static_cast<int>(options.context_size),
                          .forced_min_prompt_tokens = static_cast<int>(options.forced_min_prompt_tokens),
                          .width = std::nullopt,
                          .profiles = context.environment.overrides.profile};
  if (options.drafting.mtp_block_size) out.width = static_cast<int>(*options.drafting.mtp_block_size);
  return out;
}

Subject load_model(const BenchmarkMtpOptions& options, ProgramContext& context) {
  Subject subject;
  EngineOptions settings = engine_options(options, context);
  settings.process.speculation = any_drafts(options) ? Speculation::kOn : Speculation::kOff;  // head or none
  settings.requires_draft_head = any_drafts(options);
  settings.context_limit = static_cast<int>(options.context_size);
  settings.prefix_cache_bytes = 0;

  // Everything that needs no weights is checked before they are loaded.
  const std::vector<MtpScenario> prompts = prompts_of(options);
  const ResolvedModel resolved = resolve_model(settings.model, settings.surroundings);
  const ChatEncoder encoder(resolved.folder);
  const std::int64_t limit = std::min<std::int64_t>(options.context_size, resolved.config.max_positions);
  for (const MtpScenario& prompt : prompts)
    require_room(options, limit, static_cast<std::int64_t>(encoder.encode({{"user", prompt.prompt}}).size()));

  subject.engine = load_engine(settings, options, context);
  Engine& engine = *subject.engine;
  subject.generator = std::make_unique<EngineMtpGenerator>(engine, generator_options(options, context));
  subject.context_size = engine.context_limit();
  subject.scenarios = matrix(options, prompts);
  subject.model = engine.resolved().id;
  subject.fingerprint = engine.fingerprint();
  subject.sources = sources_json(engine.resolved());
  subject.backend = engine.backend_name();
  subject.family = engine.resolved().config.family;
  subject.device = describe_device(engine.model().ops());
  return subject;
}

Subject make_synthetic(const BenchmarkMtpOptions& options, ProgramContext& context) {
  Subject subject;
  const EngineOptions settings = engine_options(options, context);
  std::vector<MtpScenario> prompts = prompts_of(options);
  for (const MtpScenario& prompt : prompts)
    require_room(options, options.context_size, synthetic_prompt_tokens(*prompt.prompt_repeat));
  SyntheticOptions synthetic = synthetic_options(options.synthetic, settings, context);
  synthetic.max_rows = settings.prefill_chunk;
  subject.synthetic = std::make_unique<SyntheticModel>(synthetic);
  SyntheticModel& model = *subject.synthetic;
  for (MtpScenario& prompt : prompts) {
    prompt.prompt_ids = synthetic_prompt(model, *prompt.prompt_repeat);
    prompt.prompt = ids_text(prompt.prompt_ids);
  }
  subject.generator =
      std::make_unique<SyntheticMtpGenerator>(model, generator_options(options, context), settings.cost);
  subject.context_size = static_cast<int>(options.context_size);
  subject.scenarios = matrix(options, prompts);
  subject.model = model.id();
  subject.fingerprint = model.fingerprint();
  subject.backend = model.model().ops().name();
  subject.family = model.geometry().config.family;
  subject.device = describe_device(model.model().ops());
  subject.synthetic_layers = model.geometry().config.layers;
  return subject;
}

/// Why the timings are no evidence; empty for a valid run.
std::vector<std::string> invalid_reasons(const ProgramContext& context, const EnvironmentReport& around) {
  std::vector<std::string> reasons = around.invalid_reasons();
  if (context.environment.overrides.profile)
    reasons.push_back("profiled: every phase of every round was waited for");
  return reasons;
}

Json report(const BenchmarkMtpOptions& options, const ProgramContext& context, const Subject& subject,
            const EnvironmentReport& environment) {
  const std::vector<std::string> reasons = invalid_reasons(context, environment);
  Json out{{"schemaVersion", kSchemaVersion},
           {"model", subject.model},
           {"modelFingerprint", subject.fingerprint},
           {"sources", subject.sources},
           {"build", build_json(describe_build())},
           {"backend", subject.backend},
           {"device", device_json(subject.device)},
           {"threads", engine_options(options, context).threads},
           {"environment", environment_json(environment)},
           {"overrides",
            overrides_json(context.environment,
                           {.drafting = options.drafting, .family = subject.family, .unread = kUnread})},
           {"valid", reasons.empty()},
           {"invalidReasons", reasons},
           {"scenarios", Json::array()}};
  if (subject.synthetic_layers) {
    out["weights"] = "synthetic";
    out["layers"] = *subject.synthetic_layers;
  }
  return out;
}

}  // namespace

int run_benchmark_mtp(const BenchmarkMtpOptions& options, ProgramContext& context) {
  Subject subject =
      options.synthetic.geometry ? make_synthetic(options, context) : load_model(options, context);
  const MtpReportContext rendering{.model = subject.model,
                                   .backend = subject.backend,
                                   .is_synthetic = subject.synthetic != nullptr,
                                   .context_size = subject.context_size,
                                   .options = {.variants = variants_of(options),
                                               .repetitions = static_cast<int>(options.repetitions),
                                               .warmups = static_cast<int>(options.warmups),
                                               .warmup_tokens = static_cast<int>(options.warmup_tokens)}};
  EnvironmentCheck environment;
  bool parity = true;
  Json scenarios = Json::array();
  run_mtp_benchmark(*subject.generator, subject.scenarios, rendering.options, context.interrupts.flag(),
                    [&](const MtpScenarioResult& result) {
                      const MtpScenario& scenario = subject.scenarios[result.scenario];
                      parity = parity && result.outputs_equal();
                      if (options.output.json) {
                        scenarios.push_back(mtp_scenario_json(rendering, scenario, result));
                      } else {
                        write_stdout(mtp_scenario_text(rendering, scenario, result));
                      }
                    });
  const EnvironmentReport around = environment.finish();
  if (options.output.json) {
    Json out = report(options, context, subject, around);
    out["scenarios"] = std::move(scenarios);
    write_stdout(json_text(out));
  } else {
    for (const std::string& reason : invalid_reasons(context, around))
      write_stdout(fmt::format("  timings not valid: {}\n", reason));
  }
  return parity ? kExitDone : kExitNegativeVerdict;
}

}  // namespace mererun
