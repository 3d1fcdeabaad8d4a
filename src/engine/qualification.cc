#include "engine/qualification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/benchmark_verification.h"
#include "engine/chat_encoder.h"
#include "engine/retrieval_prompt.h"
#include "engine/run.h"
#include "engine/snapshot_proof.h"

namespace mererun {
namespace {

constexpr int kForcedMinPromptTokens = 1;

/// Puts back what the process said about drafting.
class ProcessScope {
 public:
  explicit ProcessScope(Engine& engine) : engine_(engine), saved_(engine.admission_process()) {}
  ~ProcessScope() { engine_.set_process(saved_.speculation, saved_.min_prompt_tokens, saved_.width); }
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;

 private:
  Engine& engine_;
  AdmissionProcess saved_;
};

bool same_output(const GenerateResult& a, const GenerateResult& b) {
  return a.ids == b.ids && a.output_sha256() == b.output_sha256();
}

void add_output(QualificationStep& step, const GenerateResult& result) {
  step.details["promptTokens"] = static_cast<std::int64_t>(result.prompt_ids.size());
  step.details["generatedTokens"] = static_cast<std::int64_t>(result.ids.size());
  step.details["outputSHA256"] = result.output_sha256();
}

void add_reuse(QualificationStep& step, const GenerateResult& result) {
  step.details["cachedTokens"] = std::int64_t{result.prefix.matched_tokens};
  if (result.acceleration.draft_history_tokens)
    step.details["draftHistoryTokens"] = std::int64_t{*result.acceleration.draft_history_tokens};
}

void add_drafting(QualificationStep& step, const GenerateResult& result) {
  step.details["admissionReason"] = std::string(name_of(result.acceleration.admission.reason));
  step.details["draftedTokens"] = result.acceleration.statistics.drafted();
  step.details["acceptedDraftTokens"] = result.acceleration.statistics.accepted();
}

class Qualifier {
 public:
  Qualifier(Engine& engine, const QualificationOptions& options, const std::atomic<bool>& cancelled)
      : engine_(engine), options_(options), cancelled_(cancelled) {
    const auto length = [&](const std::vector<ChatTurn>& turns) {
      return static_cast<int>(engine_.tokenizer().encode(engine_.render(plain_chat(turns))).size());
    };
    prompts_ = build_retrieval_prompts(length, options.prompt_tokens, options.follow_up_tokens);
    draft();
  }

  QualificationStep cold();
  QualificationStep replay();
  QualificationStep serial_reference();
  QualificationStep follow_up();
  QualificationStep replay_after_follow_up();
  QualificationStep text_parity(const std::string& name, const std::string& prompt);
  QualificationStep widths();

  /// What the next process has to reproduce; no value where the folder does not hold the prompt.
  struct Memory {
    std::string fingerprint;
    SnapshotProof proof;
    GenerateResult cold;
  };
  std::optional<Memory> remember();
  QualificationStep restart(const Memory& memory);

 private:
  /// Every request drafts, however short.
  void draft() { engine_.set_process(Speculation::kOn, kForcedMinPromptTokens, std::nullopt); }

  GenerateResult run(GenerateRequest request) {
    Run run(engine_, std::move(request));
    while (!run.is_finished()) {
      if (cancelled_.load(std::memory_order_relaxed))
        throw Error(ErrorCode::kCancelled, "qualification: interrupted");
      run.step();
    }
    return run.take_result();
  }
  GenerateRequest request(const std::vector<ChatTurn>& turns, int tokens) const {
    GenerateRequest request;
    request.chat = plain_chat(turns);
    request.max_tokens = tokens;
    // The adaptive depth follows measured time and may be 0 on a busy machine; a proof must not depend on
    // that.
    request.full_depth = true;
    return request;
  }
  GenerateRequest serial_request(const std::vector<ChatTurn>& turns, int tokens) const {
    GenerateRequest serial = request(turns, tokens);
    serial.speculation = Speculation::kOff;
    serial.serial_route = true;
    serial.uses_prefix_cache = false;
    return serial;
  }
  /// Transitions that a prompt of n tokens leaves in the draft history.
  static bool has_history(const GenerateResult& result) {
    return result.acceleration.draft_history_tokens ==
           std::optional<int>(static_cast<int>(result.prompt_ids.size()) - 1);
  }

  Engine& engine_;
  const QualificationOptions& options_;
  const std::atomic<bool>& cancelled_;
  RetrievalPrompts prompts_;
  GenerateResult cold_;
};

QualificationStep Qualifier::cold() {
  QualificationStep step{.name = "cold", .pass = std::nullopt, .details = {}};
  cold_ = run(request(prompts_.first, options_.reply_tokens));
  const bool names_marker = cold_.content.find(prompts_.marker) != std::string::npos;
  add_output(step, cold_);
  add_reuse(step, cold_);
  add_drafting(step, cold_);
  step.details["namesMarker"] = names_marker;
  step.details["expectsRetrieval"] = options_.expects_retrieval;
  step.details["prefillSeconds"] = cold_.timings.prefill_seconds;
  step.details["decodeSeconds"] = cold_.timings.decode_seconds;
  step.pass = static_cast<int>(cold_.prompt_ids.size()) == options_.prompt_tokens &&
              cold_.prefix.matched_tokens == 0 && has_history(cold_) &&
              cold_.acceleration.statistics.drafted() > 0 && (names_marker || !options_.expects_retrieval);
  return step;
}

QualificationStep Qualifier::replay() {
  QualificationStep step{.name = "replay", .pass = std::nullopt, .details = {}};
  const GenerateResult result = run(request(prompts_.first, options_.reply_tokens));
  add_output(step, result);
  add_reuse(step, result);
  step.pass = result.prefix.matched_tokens == options_.prompt_tokens && has_history(result) &&
              same_output(result, cold_);
  return step;
}

QualificationStep Qualifier::serial_reference() {
  QualificationStep step{.name = "serial", .pass = std::nullopt, .details = {}};
  const GenerateResult result = run(serial_request(prompts_.first, options_.reply_tokens));
  add_output(step, result);
  add_reuse(step, result);
  step.details["route"] = std::string(name_of(result.acceleration.route));
  step.pass = result.acceleration.route == Route::kSerial && result.prefix.matched_tokens == 0 &&
              result.acceleration.statistics.drafted() == 0 && same_output(result, cold_);
  return step;
}

QualificationStep Qualifier::follow_up() {
  QualificationStep step{.name = "follow-up", .pass = std::nullopt, .details = {}};
  const std::int64_t hits_before = engine_.prefix_cache().counters().hits;
  const GenerateResult result = run(request(prompts_.follow_up, options_.reply_tokens));
  const std::int64_t hits = engine_.prefix_cache().counters().hits - hits_before;
  const GenerateResult serial = run(serial_request(prompts_.follow_up, options_.reply_tokens));
  add_output(step, result);
  add_reuse(step, result);
  step.details["prefixHits"] = hits;
  step.details["serialOutputSHA256"] = serial.output_sha256();
  step.pass = static_cast<int>(result.prompt_ids.size()) == options_.follow_up_tokens && hits == 1 &&
              result.prefix.matched_tokens > 0 && has_history(result) && same_output(result, serial);
  return step;
}

QualificationStep Qualifier::replay_after_follow_up() {
  QualificationStep step{.name = "replay-after-follow-up", .pass = std::nullopt, .details = {}};
  const GenerateResult result = run(request(prompts_.first, options_.reply_tokens));
  add_output(step, result);
  add_reuse(step, result);
  step.pass = has_history(result) && same_output(result, cold_);
  return step;
}

QualificationStep Qualifier::text_parity(const std::string& name, const std::string& prompt) {
  QualificationStep step{.name = name, .pass = std::nullopt, .details = {}};
  const std::vector<ChatTurn> turns = {{"user", prompt}};
  const auto drafted = [&](bool full_depth) {
    GenerateRequest r = request(turns, options_.text_tokens);
    r.full_depth = full_depth;
    r.ignores_eos = true;
    r.uses_prefix_cache = false;
    return run(std::move(r));
  };
  GenerateRequest serial_turn = serial_request(turns, options_.text_tokens);
  serial_turn.ignores_eos = true;
  const GenerateResult serial = run(std::move(serial_turn));
  engine_.set_process(Speculation::kAuto, std::nullopt, std::nullopt);
  const GenerateResult automatic = drafted(false);
  draft();
  const GenerateResult forced = drafted(true);
  add_output(step, serial);
  add_drafting(step, forced);
  step.details["automaticReason"] = std::string(name_of(automatic.acceleration.admission.reason));
  step.details["automaticEqualsSerial"] = same_output(automatic, serial);
  step.details["forcedEqualsSerial"] = same_output(forced, serial);
  step.pass = static_cast<int>(serial.ids.size()) == options_.text_tokens && same_output(automatic, serial) &&
              forced.acceleration.statistics.drafted() > 0 && same_output(forced, serial);
  return step;
}

QualificationStep Qualifier::widths() {
  QualificationStep step{.name = "widths", .pass = true, .details = {}};
  const std::string text = engine_.render(plain_chat({{"user", verification_prompt()}}));
  const std::vector<TokenId> prompt = engine_.tokenizer().encode(text);
  VerificationBenchmark benchmark(engine_.model(), prompt, cancelled_);
  std::int64_t rows = 0, failed = 0;
  for (const int tokens : options_.oracle_tokens) {
    const VerificationOracle oracle = benchmark.greedy_oracle(tokens);
    for (const int width : options_.widths) {
      const VerificationRow row = benchmark.verify(oracle, width, 1);
      ++rows;
      if (row.passes_parity()) continue;
      ++failed;
      step.pass = false;
      if (row.first_mismatch && !step.details.contains("firstMismatch"))
        step.details["firstMismatch"] =
            fmt::format("width {} row {} of {}", width, row.first_mismatch->row, tokens);
    }
  }
  step.details["widths"] = fmt::format("{}", fmt::join(options_.widths, ","));
  step.details["oracleTokens"] = fmt::format("{}", fmt::join(options_.oracle_tokens, ","));
  step.details["runs"] = rows;
  step.details["failedRuns"] = failed;
  return step;
}

std::optional<Qualifier::Memory> Qualifier::remember() {
  DiskStore* disk = engine_.disk_store();
  if (disk == nullptr) return std::nullopt;
  disk->flush();
  run(request(prompts_.first, 1));  // what the disk was too busy to take is offered again when it is used
  disk->flush();
  const std::vector<TokenId>& ids = cold_.prompt_ids;
  const auto snapshot = engine_.prefix_cache().peek(ids, true);
  if (!snapshot || snapshot->ids().size() != ids.size()) return std::nullopt;
  const int length = snapshot->length();
  const bool is_stored =
      disk->find({.prompt = ids, .longer_than = length - 1, .needs_history = true, .base = snapshot.get()})
          .snapshot != nullptr;
  if (!is_stored) return std::nullopt;
  return Memory{engine_.fingerprint(), prove_snapshot(engine_, *snapshot), cold_};
}

/// The checks of the long prompt once more, against what the process before answered: the first answer comes
/// from disk, whole.
QualificationStep Qualifier::restart(const Memory& memory) {
  QualificationStep step{.name = "restart", .pass = std::nullopt, .details = {}};
  cold_ = memory.cold;
  const GenerateResult result = run(request(prompts_.first, options_.reply_tokens));
  add_output(step, result);
  add_reuse(step, result);
  step.details["tier"] = result.prefix.tier;
  const auto snapshot = engine_.prefix_cache().peek(result.prompt_ids, true);
  const SnapshotProof proof = snapshot ? prove_snapshot(engine_, *snapshot) : SnapshotProof{};
  const bool same_drafts = proof.first_drafts == memory.proof.first_drafts;
  const bool same_state = proof.state_sha256 == memory.proof.state_sha256;
  const bool same_acceptance =
      result.acceleration.statistics.accepted_counts() == cold_.acceleration.statistics.accepted_counts();
  step.details["firstDraftsEqual"] = same_drafts;
  step.details["stateEqual"] = same_state;
  step.details["stateSHA256"] = proof.state_sha256;
  step.details["acceptanceEqual"] = same_acceptance;
  step.pass = engine_.fingerprint() == memory.fingerprint && result.prefix.tier == "disk" &&
              result.prefix.matched_tokens == options_.prompt_tokens && has_history(result) &&
              same_output(result, cold_) && !proof.first_drafts.empty() && same_drafts && same_state &&
              same_acceptance;
  const auto repeat = [&](const char* name, const QualificationStep& check) {
    step.details[name] = *check.pass;
    step.pass = *step.pass && *check.pass;
  };
  repeat("serial", serial_reference());
  repeat("followUp", follow_up());
  repeat("replayAfterFollowUp", replay_after_follow_up());
  return step;
}

/// Replaces the engine, then asks it for the long prompt and its follow-up.
QualificationStep restart_step(const std::optional<Qualifier::Memory>& memory,
                               const QualificationOptions& options, const std::atomic<bool>& cancelled) {
  if (!memory) {
    return {.name = "restart",
            .pass = std::nullopt,
            .details = {{"notRun", options.restart
                                       ? std::string("the prefix cache folder did not take the prompt")
                                       : options.no_restart}}};
  }
  Engine& engine = options.restart();
  const ProcessScope scope(engine);
  return Qualifier(engine, options, cancelled).restart(*memory);
}

}  // namespace

bool QualificationReport::pass() const {
  return std::all_of(steps.begin(), steps.end(),
                     [](const QualificationStep& step) { return step.pass.value_or(true); });
}

QualificationReport qualify(Engine& engine, const QualificationOptions& options,
                            const std::atomic<bool>& cancelled,
                            const std::function<void(const QualificationStep&)>& on_step) {
  MERERUN_CHECK(engine.prefix_cache().is_enabled(), "qualification proves the prefix cache");
  QualificationReport report;
  const auto add = [&](QualificationStep step) {
    if (on_step) on_step(step);
    report.steps.push_back(std::move(step));
  };
  std::optional<Qualifier::Memory> memory;
  {
    const ProcessScope scope(engine);
    engine.prefix_cache().clear();
    Qualifier qualifier(engine, options, cancelled);
    add(qualifier.cold());
    add(qualifier.replay());
    add(qualifier.serial_reference());
    add(qualifier.follow_up());
    add(qualifier.replay_after_follow_up());
    add(qualifier.text_parity("code", verification_prompt()));
    add(qualifier.text_parity("math", "Compute 63 times 48 step by step."));
    add(qualifier.text_parity("prose", "Tell me a short story about Iris and an otter."));
    add(qualifier.widths());
    if (options.restart) memory = qualifier.remember();
  }
  add(restart_step(memory, options, cancelled));
  return report;
}

}  // namespace mererun
