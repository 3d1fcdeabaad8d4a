#include <fmt/format.h>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "engine/sampling_defaults.h"

namespace mererun {

namespace {

constexpr std::int64_t kWidestVerification = 32;

[[noreturn]] void refuse_both(const char* names) {
  fail_expected(ErrorCode::kInvalidArgument, names, "at most one of them", "both");
}

// Settles a single value and its list spelling into one list.
template <typename T>
void settle(const std::optional<T>& single, const std::vector<T>& values, const char* names,
            std::vector<T>& target) {
  if (single && !values.empty()) refuse_both(names);
  if (single) target = {*single};
  if (!values.empty()) target = values;
}

// A synthetic model has no folder, no tokenizer and no words.
void check_synthetic(const SyntheticFlags& synthetic, const ModelFlags& model, bool has_prompt) {
  if (synthetic.layers && !synthetic.geometry)
    fail_expected(ErrorCode::kInvalidArgument, "--synthetic-layers", "--synthetic beside it", "none");
  if (synthetic.table_mib && !synthetic.geometry)
    fail_expected(ErrorCode::kInvalidArgument, "--synthetic-table-mib", "--synthetic beside it", "none");
  if (!synthetic.geometry) return;
  if (model.model || model.model_root || model.mtp_root) {
    fail_expected(ErrorCode::kInvalidArgument, "--synthetic",
                  "no --model, --model-root or --mtp-root beside it", "one");
  }
  if (has_prompt) {
    fail_expected(ErrorCode::kInvalidArgument, "--synthetic",
                  "--prompt-repeat at most, since it has no tokenizer", "a prompt of words");
  }
}

void declare_prompts(OptionTable& table, BenchmarkMtpOptions& options) {
  table.group("Prompt (at most one)");
  table.text({.names = "-p,--prompt", .value = "TEXT", .help = "the user's message", .default_text = {}},
             options.prompt);
  table.text({.names = "--prompt-file", .value = "FILE", .help = "read it from a file", .default_text = {}},
             options.prompt_file);
  table.integer({.names = "--prompt-repeat",
                 .value = "N",
                 .help = "a made-up text of N numbered lines with a checksum word, and one question",
                 .default_text = "150"},
                {.low = 1}, options.prompt_repeat);
  table.integers({.names = "--prompt-repeat-values",
                  .value = "N,N,...",
                  .help = "one scenario each",
                  .default_text = {}},
                 {.low = 1}, true, options.prompt_repeat_values);
}

void declare_scenarios(OptionTable& table, BenchmarkMtpOptions& options) {
  table.group("Scenario (lists form a matrix)");
  table.integer({.names = "--decode-tokens",
                 .value = "N",
                 .help = "exact number of tokens to generate; end-of-text is ignored",
                 .default_text = "32"},
                {.low = 1}, options.decode_token);
  table.integers(
      {.names = "--decode-token-values", .value = "N,N,...", .help = "one scenario each", .default_text = {}},
      {.low = 1}, true, options.decode_token_values);
  table.number(
      {.names = "--temperature", .value = "T", .help = "0 to 2; the seed is always 1", .default_text = "0"},
      sampling_ranges::kTemperature, options.temperature);
  table.numbers(
      {.names = "--temperature-values", .value = "T,T,...", .help = "one scenario each", .default_text = {}},
      sampling_ranges::kTemperature, options.temperature_values);
  table.number({.names = "--top-p", .value = "P", .help = "0 < P <= 1", .default_text = "0.9"},
               sampling_ranges::kTopP, options.top_p);
  table.integer({.names = "--context-size",
                 .value = "N",
                 .help = "must hold prompt and reply",
                 .default_text = "16384"},
                {.low = 2}, options.context_size);
  table.choices(
      {.names = "--variants",
       .value = "NAME,...",
       .help = "in run order: baseline (no drafts), adaptive (the model's default), forced (drafting asked "
               "for), fixed (always the full depth)",
       .default_text = "baseline,adaptive,forced"},
      {"baseline", "adaptive", "forced", "fixed"}, options.variants);
  table.integer({.names = "--forced-mtp-min-prompt-tokens",
                 .value = "N",
                 .help = "prompt threshold of forced and fixed: they ask for drafts, so that a shorter "
                         "prompt drafts too, but a context below it does not",
                 .default_text = "1"},
                option_ranges::kMinPromptTokens, options.forced_min_prompt_tokens);
  table.integer({.names = "--repetitions", .value = "N", .help = "measured runs", .default_text = "1"},
                {.low = 1}, options.repetitions);
  table.integer({.names = "--warmups", .value = "N", .help = "runs before them", .default_text = "1"},
                {.low = 0}, options.warmups);
  table.integer({.names = "--warmup-tokens",
                 .value = "N",
                 .help = "tokens of a warm-up, capped at the decode tokens",
                 .default_text = "16"},
                {.low = 1}, options.warmup_tokens);
}

}  // namespace

void declare_synthetic(OptionTable& table, SyntheticFlags& flags) {
  table.group("Synthetic model (random weights: what a machine will do, before anything is fetched)");
  table.choice({.names = "--synthetic",
                .value = "GEOMETRY",
                .help = "random weights in the shapes of q38-27b, ornith-35b, flash-next, small-dense, "
                        "small-moe or small-flash, in place of a model; prompts are random ids, 16 a line",
                .default_text = {}},
               {"q38-27b", "ornith-35b", "flash-next", "small-dense", "small-moe", "small-flash"},
               flags.geometry);
  table.integer({.names = "--synthetic-layers",
                 .value = "N",
                 .help = "shorten the stack to N layers, at least 4; the shapes stay",
                 .default_text = "the geometry's own number"},
                {.low = 4}, flags.layers);
  table.integer({.names = "--synthetic-table-mib",
                 .value = "N",
                 .help = "size of the n-gram table of flash-next and small-flash, a temporary file",
                 .default_text = "64"},
                {.low = 1, .high = 65536}, flags.table_mib);
}

void declare(OptionTable& table, BenchmarkMtpOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
  declare_synthetic(table, options.synthetic);
  declare_prompts(table, options);
  declare_scenarios(table, options);
  declare_draft_depth(table, options.drafting);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(BenchmarkMtpOptions& options) {
  const int prompts = static_cast<int>(options.prompt.has_value()) +
                      static_cast<int>(options.prompt_file.has_value()) +
                      static_cast<int>(options.prompt_repeat.has_value()) +
                      static_cast<int>(!options.prompt_repeat_values.empty());
  if (prompts > 1) {
    fail_expected(ErrorCode::kInvalidArgument,
                  "--prompt, --prompt-file, --prompt-repeat and --prompt-repeat-values",
                  "at most one of them", std::to_string(prompts));
  }
  check_synthetic(options.synthetic, options.model, options.prompt || options.prompt_file);
  settle(options.prompt_repeat, options.prompt_repeat_values, "--prompt-repeat and its values",
         options.prompt_repeats);
  settle(options.decode_token, options.decode_token_values, "--decode-tokens and --decode-token-values",
         options.decode_tokens);
  settle(options.temperature, options.temperature_values, "--temperature and --temperature-values",
         options.temperatures);
  for (const std::int64_t tokens : options.decode_tokens) {
    if (tokens >= options.context_size) {
      fail_expected(ErrorCode::kInvalidArgument, "--context-size",
                    fmt::format("more than {} decode tokens", tokens), std::to_string(options.context_size));
    }
  }
}

void declare(OptionTable& table, BenchmarkVerificationOptions& options) {
  declare_model(table, options.model, "demo-dense-4bit");
  declare_synthetic(table, options.synthetic);
  table.group("Verification (target only: capacity, not generation speed)");
  table.integers({.names = "--widths",
                  .value = "W,W,...",
                  .help = "rows a pass, each at most the certified width",
                  .default_text = "1,4,8,9; Flash-Next 1,4,8,16,32"},
                 {1, kWidestVerification}, true, options.widths);
  table.toggle({.names = "--uncertified",
                .value = {},
                .help = "allow widths up to 32; such rows say so",
                .default_text = {}},
               options.uncertified);
  table.integer(
      {.names = "--tokens", .value = "N", .help = "tokens to verify, at least 32", .default_text = "128"},
      {.low = 32}, options.tokens);
  table.integer({.names = "--trials", .value = "N", .help = "passes over all widths", .default_text = "2"},
                {.low = 1}, options.trials);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(BenchmarkVerificationOptions& options) {
  check_synthetic(options.synthetic, options.model, false);
}

void apply_environment(const Environment& environment, BenchmarkMtpOptions& options) {
  apply_environment(environment, static_cast<CommonOptions&>(options));
  options.drafting.speculation.reset();
  options.drafting.mtp_block_size.reset();
}

void check_widths(const BenchmarkVerificationOptions& options, std::int64_t certified_max) {
  for (const std::int64_t width : options.widths) {
    if (width > certified_max && !options.uncertified) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--widths: expected at most the certified width {}, got {}", certified_max, width),
          "--uncertified allows widths up to 32");
    }
  }
}

}  // namespace mererun
