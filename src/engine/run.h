#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "decode/generation.h"
#include "decode/prefill.h"
#include "engine/engine.h"
#include "engine/prompt_plan.h"
#include "engine/request.h"
#include "engine/text_sink.h"

namespace mererun {

/// A prompt that leaves no room for a reply.
class PromptTooLong final : public Error {
 public:
  PromptTooLong(int prompt_tokens, int context);
  int prompt_tokens() const { return prompt_tokens_; }
  int context() const { return context_; }

 private:
  int prompt_tokens_, context_;
};

/// One request, from prompt to result, in steps: a prefill chunk or a round. Several runs may take turns on
/// one engine; each gives the tokens it gives alone.
///
/// Thread-safety: one thread at a time, except `cancel`.
class Run {
 public:
  /// Renders, encodes, validates and admits; nothing is computed yet.
  /// Thread-safe: requests may be prepared while another thread computes.
  /// Errors: kInvalidArgument for a bad field; PromptTooLong (both counts in the message).
  Run(Engine& engine, GenerateRequest request, PieceListener listener = {});
  ~Run();

  const std::vector<TokenId>& prompt() const { return plan_.ids; }
  const Admission& admission() const { return admission_; }
  /// Prompt positions evaluated or restored so far, and how many of them were restored.
  int prompt_done() const;
  int prompt_reused() const { return prefix_.matched_tokens; }
  /// Most tokens of the reply, clamped to what the context leaves.
  int budget() const { return max_tokens_; }
  /// The reply so far.
  const TextSink& output() const { return sink_; }
  /// Counts so far; null before the first token.
  const Statistics* statistics() const { return generation_ ? &generation_->statistics() : nullptr; }

  bool is_finished() const { return finished_; }
  /// Errors end the run: they propagate once, after the text so far was released.
  void step();
  void run_to_end() {
    while (!is_finished()) step();
  }
  /// Ends the request at the next step. Thread-safe.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  /// Once finished.
  GenerateResult take_result();

 private:
  void constrain_reasoning();
  void open();
  bool uses_cache() const;
  bool needs_history() const;
  void open_state();
  void plan_snapshots();
  void report_match(const PrefixMatch& match);
  void step_prefill();
  void begin_decode();
  void store_snapshot(SnapshotClass kind, std::vector<float> logits);
  void finish(FinishReason reason);
  StopOptions stop_options() const;

  Engine& engine_;
  GenerateRequest request_;
  PromptPlan plan_;
  int context_limit_ = 0;
  int max_tokens_ = 0;
  Admission admission_;
  std::atomic<bool> cancelled_{false};
  bool opened_ = false;
  bool finished_ = false;
  FinishReason reason_ = FinishReason::kError;  // once finished

  Sampler sampler_;
  TextSink sink_;
  std::shared_ptr<const Snapshot> restored_;  // pinned from admission to the first token
  std::optional<SequenceState> state_;
  std::map<Position, SnapshotClass> snapshots_;  // to take on the way through the prompt
  std::optional<Prefill> prefill_;
  std::optional<DepthPolicy> policy_;
  std::optional<Generation> generation_;
  std::vector<float> first_logits_;
  Stopwatch watch_;
  double prefill_seconds_ = 0, decode_seconds_ = 0, first_token_seconds_ = 0;
  PrefixReport prefix_;
  std::optional<int> draft_history_tokens_;
  SpeculationProfile profile_;
};

/// Makes a run and takes it to its end.
GenerateResult generate(Engine& engine, GenerateRequest request, PieceListener listener = {});

}  // namespace mererun
