#include "engine/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "engine/reasoning_budget.h"
#include "grammar/compile.h"

namespace mererun {
namespace {

// Aligned snapshots inside a prompt: at powers of two, then at multiples of kSnapshotGapTokens. A change at
// position d leaves at least half of d to reuse, and loses less than that.
constexpr Position kFirstAligned = 128;

SamplingOptions validated(SamplingOptions options, int vocabulary) {
  validate(options, vocabulary);
  return options;
}

int resolve_context(const Engine& engine, const GenerateRequest& request) {
  const int limit = std::min(request.context_limit.value_or(engine.context_limit()),
                             engine.resolved().config.max_positions);
  if (limit < 1)
    fail_expected(ErrorCode::kInvalidArgument, "context size", "at least 1", fmt::format("{}", limit));
  return limit;
}

/// The budget, clamped to what the context leaves. Errors: kInvalidArgument with both counts when nothing is
/// left.
int resolve_budget(const GenerateRequest& request, int prompt, int context) {
  if (prompt >= context) throw PromptTooLong(prompt, context);
  const int left = context - prompt;
  const int asked = request.max_tokens.value_or(left);
  if (asked < 1)
    fail_expected(ErrorCode::kInvalidArgument, "max_tokens", "at least 1", fmt::format("{}", asked));
  return std::min(asked, left);
}

Admission admit_request(const Engine& engine, const GenerateRequest& request, int prompt, int context) {
  return admit(engine.admission_traits(), engine.admission_process(),
               {.speculation = request.speculation,
                .width = request.width,
                .num_prompt_tokens = prompt,
                .context_limit = context,
                .has_image = false});
}

}  // namespace

PromptTooLong::PromptTooLong(int prompt_tokens, int context)
    : Error(
          ErrorCode::kInvalidArgument,
          fmt::format("prompt: expected fewer than {} tokens (the context), got {}", context, prompt_tokens),
          "shorten the conversation or raise the context size"),
      prompt_tokens_(prompt_tokens),
      context_(context) {}

Run::Run(Engine& engine, GenerateRequest request, PieceListener listener)
    : engine_(engine),
      request_(std::move(request)),
      plan_(plan_prompt(engine, request_)),
      context_limit_(resolve_context(engine, request_)),
      max_tokens_(resolve_budget(request_, static_cast<int>(plan_.ids.size()), context_limit_)),
      admission_(admit_request(engine, request_, static_cast<int>(plan_.ids.size()), context_limit_)),
      sampler_(validated(request_.sampling, engine.resolved().config.vocabulary), plan_.ids),
      sink_({.tokenizer = engine.shared_tokenizer(),
             .stop = stop_options(),
             .parser = {.starts_in_reasoning = plan_.starts_in_reasoning,
                        .is_plain = request_.plain_output,
                        .tools = request_.chat ? request_.chat->tools : nullptr},
             .logprobs = request_.logprobs,
             .listener = std::move(listener)}) {
  if (request_.serial_route) admission_.drafts = false;
  if (plan_.starts_in_reasoning) constrain_reasoning();
  if (uses_cache()) restored_ = engine_.prefix_cache().peek(plan_.ids, needs_history());
}

Run::~Run() = default;

/// A constraint is on the answer: it acts behind the end of the reasoning, which a budget may bring about.
void Run::constrain_reasoning() {
  if (request_.constraint)
    request_.constraint =
        constrain_after_reasoning(std::move(request_.constraint), engine_.grammar_vocabulary());
  const auto end = engine_.tokenizer().find_token("</think>");
  if (!request_.reasoning_budget || !end) return;
  request_.constraint = std::make_unique<ReasoningBudget>(
      std::move(request_.constraint),
      ReasoningBudget::Options{.tokenizer = engine_.shared_tokenizer(),
                               .reasoning_end = *end,
                               .vocabulary = engine_.resolved().config.vocabulary,
                               .budget = *request_.reasoning_budget});
}

int Run::prompt_done() const {
  return state_ ? std::min(state_->length(), static_cast<int>(plan_.ids.size())) : 0;
}

StopOptions Run::stop_options() const {
  return {.eos_ids = request_.ignores_eos ? std::vector<TokenId>{} : engine_.eos_ids(),
          .stop_strings = request_.stop,
          .max_tokens = max_tokens_,
          .stops_after_tool_call = request_.stops_after_tool_call,
          .starts_in_reasoning = plan_.starts_in_reasoning};
}

/// Retained hidden rows are no part of a snapshot, so that mode neither reads nor stores.
bool Run::uses_cache() const {
  return request_.uses_prefix_cache && engine_.prefix_cache().is_enabled() &&
         admission_.history != HistoryMode::kRetained;
}

/// A request that prepares a history needs the prefix's part of it, whether it drafts or not: what it leaves
/// behind serves later requests that do.
bool Run::needs_history() const {
  return admission_.history == HistoryMode::kStreaming && engine_.model().head() != nullptr;
}

void Run::report_match(const PrefixMatch& match) {
  prefix_.outcome = "miss";
  if (match.snapshot) {
    prefix_.matched_tokens = match.snapshot->length();
    prefix_.outcome = prefix_.matched_tokens == static_cast<int>(plan_.ids.size()) ? "exact" : "prefix";
    prefix_.kind = name_of(match.kind);
    prefix_.tier = match.is_from_disk ? "disk" : "memory";
  }
  switch (match.limit) {
    case PrefixLimit::kNone: break;
    case PrefixLimit::kEmpty: prefix_.reason = "empty"; break;
    case PrefixLimit::kNoCommonPrefix: prefix_.reason = "no-common-prefix"; break;
    case PrefixLimit::kDiverged: prefix_.reason = fmt::format("diverged-at {}", match.common_tokens); break;
    case PrefixLimit::kEvicted: prefix_.reason = "evicted"; break;
    case PrefixLimit::kCorrupt: prefix_.reason = "corrupt"; break;
    case PrefixLimit::kFingerprint: prefix_.reason = "fingerprint"; break;
    case PrefixLimit::kNoHistory: prefix_.reason = "no-history"; break;
  }
}

/// Finds the longest stored prefix, or starts cold, and lays out the prefill.
void Run::open_state() {
  if (uses_cache()) {
    PrefixMatch match = engine_.prefix_cache().lookup(plan_.ids, needs_history());
    report_match(match);
    restored_ = std::move(match.snapshot);
  } else {
    prefix_.reason = admission_.history == HistoryMode::kRetained ? "retained-history" : "disabled";
  }
  state_.emplace(restored_ ? restored_->restore() : engine_.model().new_sequence());

  if (uses_cache()) plan_snapshots();
  PrefillOptions options{.chunk = engine_.prefill_chunk(), .history = admission_.history};
  for (const auto& [position, kind] : snapshots_) options.stops.push_back(position);
  prefill_.emplace(engine_.model(), *state_, plan_.ids, std::move(options));
}

void Run::plan_snapshots() {
  const auto prompt = static_cast<Position>(plan_.ids.size());
  for (Position at = kFirstAligned; at < prompt; at += std::min(at, kSnapshotGapTokens))
    snapshots_[at] = SnapshotClass::kInterval;
  for (const Position at : plan_.message_ends) snapshots_[at] = SnapshotClass::kInterval;
  for (const Position at : plan_.semantic) snapshots_[at] = SnapshotClass::kSemantic;
  if (plan_.system_end) snapshots_[*plan_.system_end] = SnapshotClass::kSystem;
}

void Run::open() {
  opened_ = true;
  watch_.restart();
  open_state();
  if (prefill_->is_done()) begin_decode();
}

void Run::store_snapshot(SnapshotClass kind, std::vector<float> logits) {
  if (!uses_cache()) return;
  PrefixCache& cache = engine_.prefix_cache();
  const auto length = static_cast<std::size_t>(state_->length());
  std::vector<TokenId> ids(
      plan_.ids.begin(), plan_.ids.begin() + static_cast<std::ptrdiff_t>(std::min(length, plan_.ids.size())));
  if (generation_) {
    const auto extra = static_cast<std::ptrdiff_t>(length - plan_.ids.size());
    ids.insert(ids.end(), generation_->tokens().begin(), generation_->tokens().begin() + extra);
  }
  if (cache.touch(ids, kind, !logits.empty(), needs_history())) return;
  std::shared_ptr<const Snapshot> snapshot;
  try {
    snapshot = Snapshot::capture(*state_, std::move(ids), std::move(logits), kind);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    return cache.count_skipped("budget");  // the request itself can go on
  }
  const bool answers = kind == SnapshotClass::kPrompt || kind == SnapshotClass::kReply;
  cache.store(std::move(snapshot), answers ? plan_.messages_end : 0);
}

void Run::step_prefill() {
  prefill_->step();
  if (prefill_->is_done()) return begin_decode();
  const auto planned = snapshots_.find(state_->length());
  if (planned != snapshots_.end()) store_snapshot(planned->second, {});
}

void Run::begin_decode() {
  Model& model = engine_.model();
  const bool replays =
      restored_ && restored_->length() == static_cast<int>(plan_.ids.size()) && !restored_->logits().empty();
  if (replays) {
    first_logits_.assign(restored_->logits().begin(), restored_->logits().end());
  } else {
    const TensorView row = model.decoder().logits(state_->last_hidden());
    first_logits_.resize(static_cast<std::size_t>(row.cols));
    model.ops().download(first_logits_.data(), row.data, first_logits_.size() * sizeof(float));
    store_snapshot(SnapshotClass::kPrompt, first_logits_);
  }
  restored_.reset();
  if (!uses_cache() && engine_.prefix_cache().is_enabled()) engine_.prefix_cache().count_skipped("disabled");
  prefill_seconds_ = watch_.restart();

  // Read once, before decoding: confirmed prompt transitions, evaluated and waiting.
  if (admission_.drafts && state_->history()) draft_history_tokens_ = state_->history()->transitions();

  GenerationParts parts{
      .model = model, .state = *state_, .sampler = sampler_, .sink = sink_, .cancelled = &cancelled_};
  parts.constraint = request_.constraint.get();
  if (request_.profiles) parts.profile = &profile_;
  if (admission_.drafts && engine_.drafter() != nullptr && admission_.width > 1) {
    const CostModel cost =
        request_.full_depth ? CostModel{FullDepth{}} : engine_.cost_model(admission_.width, *state_);
    policy_.emplace(DepthPolicyOptions{.max_depth = admission_.width - 1, .cost = cost});
    parts.log = &engine_.verify_log(admission_.width);
    parts.drafter = engine_.drafter();
    parts.policy = &*policy_;
    watch_.restart();  // calibration is no part of the request's decoding
  }
  generation_.emplace(parts, GenerationLimits{.max_tokens = max_tokens_, .context_limit = context_limit_});
  generation_->begin(first_logits_);
  first_token_seconds_ = watch_.seconds();
  if (generation_->is_finished()) finish(*generation_->finish());
}

void Run::step() {
  if (finished_) return;
  try {
    if (cancelled_.load(std::memory_order_relaxed)) return finish(FinishReason::kCancelled);
    if (!opened_) return open();
    if (!generation_) return step_prefill();
    generation_->round();
    if (generation_->is_finished()) finish(*generation_->finish());
  } catch (const Error&) {
    finish(FinishReason::kError);
    throw;
  }
}

void Run::finish(FinishReason reason) {
  if (finished_) return;
  finished_ = true;
  reason_ = reason;
  if (generation_) decode_seconds_ = watch_.seconds();
  if (generation_ && !generation_->is_finished()) generation_->cancel();
  sink_.close(reason);
  restored_.reset();
  if (generation_ && reason != FinishReason::kError && state_->is_valid()) {
    store_snapshot(SnapshotClass::kReply, {});
  } else if (opened_ && uses_cache() && reason == FinishReason::kCancelled) {
    engine_.prefix_cache().count_skipped("cancelled");
  }
}

GenerateResult Run::take_result() {
  MERERUN_CHECK(finished_, "the run is over");
  GenerateResult result;
  result.prompt_ids = plan_.ids;
  result.finish = reason_;  // a run cancelled while it prefills has no generation to ask
  if (generation_) {
    result.ids = generation_->tokens();
    result.acceleration.statistics = generation_->statistics();
  }
  result.reasoning = sink_.reasoning();
  result.content = sink_.content();
  result.tool_calls = sink_.tool_calls();
  result.reasoning_tokens = sink_.reasoning_tokens();
  result.seed = sampler_.options().seed;
  result.logprobs = sink_.take_logprobs();
  result.timings = {prefill_seconds_, decode_seconds_, first_token_seconds_};
  AccelerationReport& a = result.acceleration;
  a.admission = admission_;
  a.route = admission_.drafts       ? Route::kMtpSpeculative
            : request_.serial_route ? Route::kSerial
                                    : Route::kFinalTargetPipelined;
  if (request_.profiles) a.profile = profile_;
  a.draft_history_tokens = draft_history_tokens_;
  a.draft_model = engine_.resolved().config.family == Family::kFlashNext ? "qwen4-exp-mtp" : "qwen-mtp";
  if (policy_) a.cost_model = name_of(policy_->cost());
  result.prefix = prefix_;
  return result;
}

std::string GenerateResult::output_sha256() const {
  std::string text = reasoning;
  text.push_back('\0');
  text += content;
  return sha256_hex(text);
}

GenerateResult generate(Engine& engine, GenerateRequest request, PieceListener listener) {
  Run run(engine, std::move(request), std::move(listener));
  run.run_to_end();
  return run.take_result();
}

}  // namespace mererun
