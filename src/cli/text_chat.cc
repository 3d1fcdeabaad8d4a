#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/chat_stats.h"
#include "cli/commands.h"
#include "cli/engine_setup.h"
#include "cli/environment.h"
#include "cli/exit_codes.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/prompt.h"
#include "cli/reply_form.h"
#include "cli/report_parts.h"
#include "cli/turn_reader.h"
#include "engine/report_json.h"
#include "engine/run.h"

namespace mererun {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kInteractiveCacheBytes = std::size_t{1} << 30;
constexpr std::string_view kUnread[] = {"MERERUN_API_KEY"};
using OrderedJson = nlohmann::ordered_json;

/// Template variables that flags set; thinking follows the model's default where nothing is said.
std::shared_ptr<const OrderedJson> template_arguments(const TextChatOptions& options, const Engine& engine) {
  OrderedJson arguments = OrderedJson::object();
  arguments["enable_thinking"] = options.thinking.value_or(engine.traits().thinking);
  if (options.reasoning_effort) arguments["reasoning_effort"] = *options.reasoning_effort;
  return std::make_shared<const OrderedJson>(std::move(arguments));
}

GenerateRequest make_request(const TextChatOptions& options, const Engine& engine,
                             const OrderedJson& messages, const ProgramContext& context) {
  GenerateRequest request;
  request.chat = ChatPrompt{.messages = std::make_shared<const OrderedJson>(messages),
                            .tools = nullptr,
                            .template_arguments = template_arguments(options, engine)};
  request.sampling = sampling_options(options.sampling, engine.resolved().config);
  request.stop = options.stop;
  request.max_tokens = static_cast<int>(options.max_tokens);
  if (options.context_size) request.context_limit = static_cast<int>(*options.context_size);
  if (options.logprobs) request.logprobs = static_cast<int>(*options.logprobs);
  request.serial_route = options.drafting.is_serial_route;
  request.profiles = context.environment.overrides.profile;
  return request;
}

ChatStats stats_of(const GenerateResult& result) {
  const AccelerationReport& a = result.acceleration;
  return {.route = std::string(name_of(a.route)),
          .reason = std::string(name_of(a.admission.reason)),
          .prompt_tokens = static_cast<std::int64_t>(result.prompt_ids.size()),
          .cached_tokens = result.prefix.matched_tokens,
          .generated_tokens = static_cast<std::int64_t>(result.ids.size()),
          .prefill_seconds = result.timings.prefill_seconds,
          .decode_rate = result.timings.decode_rate(static_cast<std::int64_t>(result.ids.size())),
          .rounds = a.statistics.rounds(),
          .drafted_tokens = a.statistics.drafted(),
          .accepted_tokens = a.statistics.accepted(),
          .history_tokens = a.draft_history_tokens};
}

Json logprobs_json(const Engine& engine, const GenerateResult& result) {
  const auto entry = [&](const TokenLogprob& t) {
    const std::string_view bytes = engine.tokenizer().token_bytes(t.id);
    return Json{{"id", t.id}, {"token", std::string(bytes)}, {"logprob", t.logprob}};
  };
  Json out = Json::array();
  for (const TokenLogprobs& token : result.logprobs) {
    Json row = entry(token.row.chosen);
    row["top"] = Json::array();
    for (const TokenLogprob& t : token.row.top) row["top"].push_back(entry(t));
    out.push_back(std::move(row));
  }
  return out;
}

Json report(const TextChatOptions& options, Engine& engine, const GenerateResult& result,
            const ProgramContext& context) {
  Json out{{"model", engine.resolved().id},
           {"backend", std::string(engine.backend_name())},
           {"prompt", {{"tokens", result.prompt_ids.size()}, {"cachedTokens", result.prefix.matched_tokens}}},
           {"reasoning", result.reasoning},
           {"response", result.content},
           {"toolCalls", tool_calls_json(result)},
           {"finishReason", std::string(name_of(result.finish))},
           {"generatedTokens", result.ids.size()},
           {"seed", result.seed},
           {"timings", timings_json(result)},
           {"acceleration", acceleration_json(result.acceleration)},
           {"prefixCache", prefix_json(result.prefix)},
           {"overrides",
            overrides_json(context.environment, {.drafting = options.drafting,
                                                 .family = engine.resolved().config.family,
                                                 .has_prefix_cache = engine.prefix_cache().is_enabled(),
                                                 .unread = kUnread})},
           {"outputSHA256", result.output_sha256()}};
  out["timings"]["loadSeconds"] = engine.load_seconds();
  if (options.logprobs) out["logprobs"] = logprobs_json(engine, result);
  return out;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) fail_expected(ErrorCode::kIo, path, "a file that can be written", "a refusal");
}

/// Prints text as it comes, reasoning only where asked for, and ends the reply with one line end.
class ReplyPrinter {
 public:
  ReplyPrinter(bool streams, bool shows_thinking) : streams_(streams), shows_thinking_(shows_thinking) {}

  void operator()(const OutputPiece& piece) {
    if (piece.kind == OutputPiece::Kind::kReasoning && !shows_thinking_) return;
    if (piece.kind == OutputPiece::Kind::kToolCall) {
      put(fmt::format("{}({})\n", piece.name, piece.arguments));
    } else {
      if (piece.kind == OutputPiece::Kind::kContent && in_reasoning_) put("\n\n");
      in_reasoning_ = piece.kind == OutputPiece::Kind::kReasoning;
      put(piece.text);
    }
  }
  void finish() {
    if (text_.empty() || text_.back() != '\n') put("\n");
    if (!streams_) write_stdout(text_);
  }

 private:
  void put(std::string_view text) {
    text_ += text;
    if (streams_) write_stdout(text);
  }
  bool streams_, shows_thinking_;
  bool in_reasoning_ = false;
  std::string text_;
};

/// One reply, with prefill progress and Ctrl-C answered at the round boundary.
GenerateResult answer(const TextChatOptions& options, Engine& engine, ReplyForm& form,
                      const OrderedJson& messages, ProgramContext& context) {
  ProgressDisplay display(progress_mode(options, context), context.terminal.stderr_columns);
  ReplyPrinter printer(options.stream.value_or(context.terminal.is_stdout), options.show_thinking);
  PieceListener listener;
  if (!options.output.json) listener = [&](const OutputPiece& piece) { printer(piece); };
  GenerateRequest request = make_request(options, engine, messages, context);
  request.constraint = form.constraint(engine);
  Run run(engine, std::move(request), listener);
  if (const auto& path = context.environment.overrides.debug_prompt_tokens)
    write_file(*path, Json(run.prompt()).dump() + "\n");
  const auto total = static_cast<std::int64_t>(run.prompt().size());
  while (!run.is_finished()) {
    if (context.interrupts.requested()) run.cancel();
    run.step();
    if (run.prompt_done() < total) {
      display.update(
          {.phase = "prefill", .done = run.prompt_done(), .total = total, .reused = run.prompt_reused()});
    } else {
      display.finish();
    }
  }
  GenerateResult result = run.take_result();
  if (!options.output.json) printer.finish();
  if (options.stats) fmt::print(stderr, "{}\n", stats_line(stats_of(result)));
  return result;
}

void append_reply(OrderedJson& messages, const GenerateResult& result) {
  OrderedJson reply{{"role", "assistant"}, {"content", result.content}};
  if (!result.reasoning.empty()) reply["reasoning_content"] = result.reasoning;
  messages.push_back(std::move(reply));
}

int converse(const TextChatOptions& options, Engine& engine, ReplyForm& form, OrderedJson messages,
             ProgramContext& context) {
  TurnReader reader(0);
  const bool prompts = context.terminal.is_stdin && context.terminal.is_stderr;
  bool has_question = !messages.empty() && messages.back()["role"] == "user";
  for (;;) {
    if (!has_question) {
      if (prompts) fmt::print(stderr, "> ");
      std::string turn;
      const TurnReader::Result read = reader.read(turn);
      if (prompts && read != TurnReader::Result::kTurn) fmt::print(stderr, "\n");
      if (read == TurnReader::Result::kEnd) return kExitDone;
      if (read == TurnReader::Result::kGivenUp) return kExitInterrupted;
      if (read == TurnReader::Result::kInterrupted) {
        context.interrupts.clear();
        if (prompts) fmt::print(stderr, "(Ctrl-C again, or Ctrl-D, ends the conversation)\n");
        continue;
      }
      if (turn.find_first_not_of(" \t\r") == std::string::npos) continue;
      messages.push_back(user_message("turn", turn));
    }
    has_question = false;
    const GenerateResult result = answer(options, engine, form, messages, context);
    if (options.output.json) write_stdout(json_text(report(options, engine, result, context)));
    context.interrupts.clear();  // Ctrl-C ended the turn, not the conversation
    append_reply(messages, result);
  }
}

/// A conversation comes back to its own prefix with every turn, and a folder serves the next process; a
/// single answer has no use for a cache.
void set_prefix_cache(const TextChatOptions& options, const ProgramContext& context,
                      EngineOptions& settings) {
  const bool is_useful = options.interactive || options.prefix_cache_dir || options.prefix_cache_bytes;
  if (!context.environment.overrides.prefix_cache.value_or(is_useful)) return;
  settings.prefix_cache_bytes = options.prefix_cache_bytes
                                    ? static_cast<std::size_t>(*options.prefix_cache_bytes)
                                    : prefix_cache_bytes(context, kInteractiveCacheBytes);
  settings.prefix_cache_dir = options.prefix_cache_dir.value_or("");
  settings.prefix_cache_disk_bytes = options.prefix_cache_disk_bytes;
}

}  // namespace

int run_text_chat(const TextChatOptions& options, ProgramContext& context) {
  const PromptSource source = prompt_source(options, context.terminal.is_stdin);
  const OrderedJson messages = first_messages(options, source, read_stdin);
  ReplyForm form(options);

  EngineOptions engine_settings = engine_options(options, context);
  if (options.context_size) engine_settings.context_limit = static_cast<int>(*options.context_size);
  set_prefix_cache(options, context, engine_settings);
  const auto engine = load_engine(engine_settings, options, context);
  if (options.interactive) return converse(options, *engine, form, messages, context);
  const GenerateResult result = answer(options, *engine, form, messages, context);
  if (options.output.json) write_stdout(json_text(report(options, *engine, result, context)));
  return result.finish == FinishReason::kCancelled ? kExitInterrupted : kExitDone;
}

}  // namespace mererun
