#include "base/error.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/value_parsing.h"
#include "engine/sampling_defaults.h"

namespace mererun {

namespace {

constexpr std::size_t kMostStopStrings = 16;

void declare_prompt(OptionTable& table, TextChatOptions& options) {
  table.group("Prompt (exactly one of the first three, or text piped to stdin)");
  table.text({.names = "-p,--prompt", .value = "TEXT", .help = "the user's message", .default_text = {}},
             options.prompt);
  table.text({.names = "--prompt-file",
              .value = "FILE",
              .help = "read the user's message from a file",
              .default_text = {}},
             options.prompt_file);
  table.text({.names = "--messages",
              .value = "FILE",
              .help = "a whole conversation: JSON list of {\"role\", \"content\"}",
              .default_text = {}},
             options.messages_file);
  table.text({.names = "--system", .value = "TEXT", .help = "system message", .default_text = {}},
             options.system);
  table.toggle({.names = "--interactive",
                .value = {},
                .help = "a conversation, one line a turn; Ctrl-C ends a turn, Ctrl-D the conversation",
                .default_text = {}},
               options.interactive);
  table.texts({.names = "--image",
               .value = "FILE",
               .help = "refused: no model here has a vision tower",
               .default_text = {}},
              options.images);
}

void declare_limits(OptionTable& table, TextChatOptions& options) {
  table.group("Length");
  table.integer(
      {.names = "--max-tokens", .value = "N", .help = "most tokens of a reply", .default_text = "2048"},
      {.low = 1}, options.max_tokens);
  table.integer({.names = "--context-size",
                 .value = "N",
                 .help = "prompt and reply together; memory is taken as it fills",
                 .default_text = "by model"},
                {.low = 2}, options.context_size);
  table.texts({.names = "--stop",
               .value = "TEXT",
               .help = "end the reply before this text; 16 at most",
               .default_text = {}},
              options.stop);
}

void declare_sampling(OptionTable& table, SamplingFlags& flags) {
  table.group("Sampling (a flag, else the model's generation_config.json, else the default)");
  table.number({.names = "--temperature",
                .value = "T",
                .help = "0 to 2; 0 takes the likeliest token",
                .default_text = "0.7"},
               sampling_ranges::kTemperature, flags.temperature);
  table.number(
      {.names = "--top-p", .value = "P", .help = "smallest set of mass P, 0 < P <= 1", .default_text = "0.9"},
      sampling_ranges::kTopP, flags.top_p);
  table.integer(
      {.names = "--top-k", .value = "K", .help = "K likeliest tokens; 0 for all", .default_text = "off"},
      {.low = 0}, flags.top_k);
  table.number({.names = "--min-p",
                .value = "P",
                .help = "tokens of at least P times the likeliest one's probability, 0 to 1",
                .default_text = "off"},
               sampling_ranges::kMinP, flags.min_p);
  table.number({.names = "--presence-penalty",
                .value = "X",
                .help = "-2 to 2, for tokens of the reply",
                .default_text = "0"},
               sampling_ranges::kPresencePenalty, flags.presence_penalty);
  table.number({.names = "--frequency-penalty",
                .value = "X",
                .help = "-2 to 2, for each occurrence",
                .default_text = "0"},
               sampling_ranges::kFrequencyPenalty, flags.frequency_penalty);
  table.number({.names = "--repetition-penalty",
                .value = "X",
                .help = "0.000001 to 1000000; over prompt and reply",
                .default_text = "1"},
               sampling_ranges::kRepetitionPenalty, flags.repetition_penalty);
  table.custom({.names = "--seed",
                .value = "N",
                .help = "64-bit integer; the same seed gives the same text",
                .default_text = "random, reported"},
               [&flags](const auto& name, const auto& value) {
                 flags.seed = parse_seed(value);
                 if (!flags.seed) {
                   fail_expected(ErrorCode::kInvalidArgument, name, "a 64-bit integer", "\"" + value + "\"");
                 }
               });
}

void declare_reply(OptionTable& table, TextChatOptions& options) {
  table.group("Reply");
  table.choice({.names = "--response-format",
                .value = "FORM",
                .help = "text, json_object or json_schema",
                .default_text = "text"},
               {"text", "json_object", "json_schema"}, options.response_format);
  table.text({.names = "--json-schema",
              .value = "FILE",
              .help = "schema that the reply must satisfy",
              .default_text = {}},
             options.json_schema_file);
  table.text({.names = "--grammar",
              .value = "FILE",
              .help = "grammar in GBNF whose rule root says the reply",
              .default_text = {}},
             options.grammar_file);
  table.toggle_pair(
      {.names = "--thinking", .value = {}, .help = "let the model reason first", .default_text = "by model"},
      {.names = "--no-thinking", .value = {}, .help = "answer at once", .default_text = {}},
      options.thinking);
  table.toggle(
      {.names = "--show-thinking", .value = {}, .help = "print the reasoning too", .default_text = {}},
      options.show_thinking);
  table.choice({.names = "--reasoning-effort",
                .value = "LEVEL",
                .help = "low, medium or xhigh",
                .default_text = "by model"},
               {"low", "medium", "xhigh"}, options.reasoning_effort);
  table.toggle_pair(
      {.names = "--stream", .value = {}, .help = "print while generating", .default_text = "on a terminal"},
      {.names = "--no-stream", .value = {}, .help = "print when done", .default_text = {}}, options.stream);
  table.toggle({.names = "--stats",
                .value = {},
                .help = "one line on stderr: route, token counts, rates, drafts",
                .default_text = {}},
               options.stats);
  table.integer({.names = "--logprobs",
                 .value = "K",
                 .help = "log-probabilities of each token and the K likeliest, 0 to 20; needs --json",
                 .default_text = {}},
                {0, 20}, options.logprobs);
  table.toggle({.names = "--require-installed",
                .value = {},
                .help = "accepted; always so, nothing is ever downloaded",
                .default_text = {}},
               options.require_installed);
}

[[noreturn]] void refuse_pair(const std::string& names, const std::string& got = "both") {
  fail_expected(ErrorCode::kInvalidArgument, names, "at most one of them", got);
}

}  // namespace

void declare(OptionTable& table, TextChatOptions& options) {
  declare_prompt(table, options);
  declare_model(table, options.model, "demo-dense-4bit");
  declare_mtp_root(table, options.model);
  declare_limits(table, options);
  declare_sampling(table, options.sampling);
  declare_reply(table, options);
  declare_prefix_cache(table, "off; 1 GiB with --interactive or a folder", options.prefix_cache_bytes,
                       options.prefix_cache_dir, options.prefix_cache_disk_bytes);
  declare_drafting(table, options.drafting);
  declare_device(table, options.device);
  declare_output(table, options.output);
}

void validate(TextChatOptions& options) {
  if (!options.images.empty()) {
    fail_expected(ErrorCode::kUnsupported, "text chat --image", "a checkpoint with a vision tower",
                  "a program that runs text models only");
  }
  const int prompts = static_cast<int>(options.prompt.has_value()) +
                      static_cast<int>(options.prompt_file.has_value()) +
                      static_cast<int>(options.messages_file.has_value());
  if (prompts > 1)
    refuse_pair("--prompt, --prompt-file and --messages", std::to_string(prompts) + " of them");
  if (options.interactive && options.output.json) refuse_pair("--interactive and --json");
  if (options.output.json && options.stream == true) refuse_pair("--json and --stream");
  if (options.logprobs && !options.output.json) {
    fail_expected(ErrorCode::kInvalidArgument, "--logprobs", "--json beside it", "a text reply");
  }
  if (options.stop.size() > kMostStopStrings) {
    fail_expected(ErrorCode::kInvalidArgument, "--stop", "at most 16 texts",
                  std::to_string(options.stop.size()));
  }
  if (options.grammar_file &&
      (options.json_schema_file || options.response_format.value_or("text") != "text"))
    refuse_pair("--grammar and --response-format");
  if (options.json_schema_file && !options.response_format) options.response_format = "json_schema";
  const bool wants_schema = options.response_format == "json_schema";
  if (wants_schema != options.json_schema_file.has_value()) {
    fail_expected(ErrorCode::kInvalidArgument, "--response-format and --json-schema",
                  "json_schema and a schema file together",
                  wants_schema ? "no --json-schema" : *options.response_format);
  }
}

}  // namespace mererun
