#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "cache/sequence_state.h"
#include "cache/verify_transaction.h"
#include "decode/depth_policy.h"
#include "decode/drafter.h"
#include "decode/sampler.h"
#include "decode/speculation_profile.h"
#include "decode/statistics.h"
#include "decode/stop_rules.h"
#include "decode/token_constraint.h"
#include "model/model.h"

namespace mererun {

/// The target's choice for one position, on its way out.
struct TargetChoice {
  TokenId id = 0;
  Position position = 0;              // absolute index in the sequence
  std::span<const float> logits;      // [V] the raw target row; empty unless the sink wants logits
  bool completes_constraint = false;  // the request's constraint is satisfied and allows no more
};

/// What became of a choice.
struct ChoiceOutcome {
  bool is_emitted = true;              // false for an end-of-sequence id
  std::optional<FinishReason> finish;  // set when the request is over
};

/// Receives the target's choices one by one and says when the request ends. Drafts that the target refused
/// never come here.
class ChoiceSink {
 public:
  virtual ~ChoiceSink() = default;
  virtual ChoiceOutcome on_choice(const TargetChoice& choice) = 0;
  /// True if on_choice reads the logits (log-probabilities).
  virtual bool wants_logits() const { return false; }
};

/// What one request decodes with. Everything outlives the generation.
struct GenerationParts {
  Model& model;
  SequenceState& state;  // holds the whole prompt
  Sampler& sampler;
  ChoiceSink& sink;
  VerifyLog* log = nullptr;       // with a drafter: at least D + 1 rows
  Drafter* drafter = nullptr;     // null: target only
  DepthPolicy* policy = nullptr;  // with a drafter
  TokenConstraint* constraint = nullptr;
  const std::atomic<bool>* cancelled = nullptr;
  SpeculationProfile* profile = nullptr;  // set: time every phase
};

struct GenerationLimits {
  int max_tokens = 0;     // budget, >= 1: only bounds drafts, the sink ends the request
  int context_limit = 0;  // C
};

/// The decoding of one request, round by round: draft, verify, accept, commit. Without drafts a round is one
/// serial step; the tokens are the same either way.
///
/// Between rounds n positions are committed, the pending token x is chosen for position n, emitted and
/// counted, and the history holds n - 1 transitions (evaluated + waiting, less those its mode left out).
/// Thread-safety: one thread at a time.
class Generation {
 public:
  Generation(const GenerationParts& parts, const GenerationLimits& limits);

  /// Chooses the first token, from `stored_logits` [V] (a snapshot's) or, if empty, from the state's last
  /// hidden row.
  void begin(std::span<const float> stored_logits = {});

  bool is_finished() const { return finish_.has_value(); }
  std::optional<FinishReason> finish() const { return finish_; }

  /// One round; a round that finds the request cancelled only ends it.
  /// Errors: kNumeric, ConstraintDeadEnd, and those of the device leave the request unfinished; a failed
  /// verification leaves the state as it was before the round.
  void round();
  void run() {
    while (!is_finished()) round();
  }
  /// Ends the request as cancelled; the state stays as committed.
  void cancel();

  /// Emitted ids.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const Statistics& statistics() const { return statistics_; }

 private:
  struct Walk {
    int emitted = 0;   // tokens given out
    int accepted = 0;  // leading choices that equal the round's drafts
  };

  int depth_cap() const;
  DraftOutlook outlook() const;
  void record_pending();
  int draft(const DepthChoice& choice);
  TensorView forward(DepthChoice& choice, std::optional<VerifyTransaction>& transaction);
  void load_choices(TensorView logits);
  TokenId choose_row(TensorView logits, int row, Position position);
  Walk choose_and_emit(TensorView logits, Position first);
  bool emit(TokenId id, Position position, std::span<const float> logits);
  std::span<const float> host_row(int row) const;
  void append_confirmed(int rows, TensorView hidden);

  GenerationParts parts_;
  GenerationLimits limits_;
  bool chooses_on_device_;
  std::optional<FinishReason> finish_;
  std::vector<TokenId> tokens_;
  TokenId pending_ = -1;
  bool pending_recorded_ =
      false;  // x's transition is in the history already (a round failed after recording it)
  std::vector<TokenId> drafts_;
  std::vector<TokenId> rows_;     // pending token, then the round's drafts
  std::vector<TokenId> choices_;  // device argmax of each row
  std::vector<float> logits_;     // on the host, where choices need them: [W, V], or [V] of one row
  Statistics statistics_;
};

}  // namespace mererun
