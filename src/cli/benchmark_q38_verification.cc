#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/verification_report.h"
#include "engine/benchmark_verification.h"
#include "engine/chat_encoder.h"
#include "engine/synthetic_model.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

constexpr int kContextSize = 8192;
constexpr int kSyntheticPromptTokens = 16;
constexpr std::uint64_t kPromptStream = 0, kOracleStream = 1;

/// A model and its prompt, from a checkpoint or synthetic.
struct Subject {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<SyntheticModel> synthetic;
  std::string id;
  std::vector<TokenId> prompt;
  int certified_width = 9;

  Model& model() const { return engine ? engine->model() : synthetic->model(); }
};

std::vector<int> widths_of(const BenchmarkVerificationOptions& options, bool is_flash_next) {
  if (options.widths.empty())
    return is_flash_next ? std::vector<int>{1, 4, 8, 16, 32} : std::vector<int>{1, 4, 8, 9};
  std::vector<int> widths;
  for (const std::int64_t width : options.widths) widths.push_back(static_cast<int>(width));
  return widths;
}

Subject load_model(const BenchmarkVerificationOptions& options, ProgramContext& context) {
  Subject subject;
  EngineOptions settings = engine_options(options, context);
  settings.process.speculation = Speculation::kOff;  // target only: no head is loaded

  const ResolvedModel resolved = resolve_model(settings.model, settings.surroundings);
  settings.context_limit = std::min(kContextSize, resolved.config.max_positions);
  subject.certified_width = resolved.traits.certified_width;
  check_widths(options, subject.certified_width);
  subject.prompt = ChatEncoder(resolved.folder).encode({{"user", verification_prompt()}});
  const std::int64_t room = *settings.context_limit - static_cast<std::int64_t>(subject.prompt.size());
  if (options.tokens > room) {
    fail_expected(ErrorCode::kInvalidArgument, "--tokens",
                  fmt::format("at most {} (the context less the prompt)", room),
                  fmt::format("{}", options.tokens));
  }
  subject.engine = load_engine(settings, options, context);
  subject.id = subject.engine->resolved().id;
  return subject;
}

Subject make_synthetic(const BenchmarkVerificationOptions& options, ProgramContext& context) {
  Subject subject;
  subject.certified_width =
      make_synthetic_geometry(*options.synthetic.geometry, std::nullopt).certified_width;
  check_widths(options, subject.certified_width);
  if (options.tokens > kContextSize - kSyntheticPromptTokens) {
    fail_expected(
        ErrorCode::kInvalidArgument, "--tokens",
        fmt::format("at most {} (the context less the prompt)", kContextSize - kSyntheticPromptTokens),
        fmt::format("{}", options.tokens));
  }
  subject.synthetic = std::make_unique<SyntheticModel>(
      synthetic_options(options.synthetic, engine_options(options, context), context));
  subject.id = subject.synthetic->id();
  subject.prompt = subject.synthetic->random_ids(kSyntheticPromptTokens, kPromptStream);
  return subject;
}

}  // namespace

int run_benchmark_verification(const BenchmarkVerificationOptions& options, ProgramContext& context) {
  Subject subject =
      options.synthetic.geometry ? make_synthetic(options, context) : load_model(options, context);
  Model& model = subject.model();
  const VerificationOptions settings{
      .widths = widths_of(options, model.config().family == Family::kFlashNext),
      .tokens = static_cast<int>(options.tokens),
      .trials = static_cast<int>(options.trials),
      .certified_width = subject.certified_width};
  VerificationBenchmark benchmark(model, subject.prompt, context.interrupts.flag());
  const VerificationOracle oracle =
      subject.synthetic
          ? benchmark.forced_oracle(subject.synthetic->random_ids(settings.tokens, kOracleStream))
          : benchmark.greedy_oracle(settings.tokens);

  const VerificationReportContext rendering{.model = subject.id,
                                            .backend = std::string(model.ops().name()),
                                            .device = describe_device(model.ops()),
                                            .is_synthetic = subject.synthetic != nullptr,
                                            .oracle = &oracle};
  const bool json = options.output.json;
  if (!json) write_stdout(verification_heading(rendering));
  const std::vector<VerificationRow> rows = benchmark.run(oracle, settings, [&](const VerificationRow& row) {
    if (!json) write_stdout(verification_row_text(rendering, row));
  });
  if (json) {
    Json out = Json::array();
    for (const VerificationRow& row : rows) out.push_back(verification_row_json(rendering, row));
    write_stdout(json_text(out));
  } else {
    write_stdout(verification_summary_text(rows));
  }
  const bool parity =
      std::all_of(rows.begin(), rows.end(), [](const VerificationRow& row) { return row.passes_parity(); });
  return parity ? kExitDone : kExitNegativeVerdict;
}

}  // namespace mererun
