#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "decode/keyed_draw.h"
#include "decode/penalty_counts.h"
#include "decode/sampling_options.h"
#include "decode/token_mask.h"
#include "decode/token_selection.h"

namespace mererun {

/// A constraint that leaves no allowed id; the message starts with "constraint_dead_end". It ends the request
/// that asked for the constraint, and no other.
class ConstraintDeadEnd final : public Error {
 public:
  explicit ConstraintDeadEnd(Position position);
};

/// Chooses the tokens of one request from rows of logits.
///
/// A choice is a pure function of the options, the row, the mask, the position and the multiset of tokens
/// counted: never of earlier choices, of other requests or of how many rows were looked at. Order of work:
/// mask, logit bias, penalties, one rounding to fp32; then argmax (lowest id on ties) at temperature 0 or
/// top_k 1, otherwise top-k, softmax(logit / T) in double over survivors in rank order, top-p, min-p, and the
/// survivor with the largest logit / T + g(seed, position, id) (KeyedDraw). A temperature below 1e-30 counts
/// as 0.
///
/// Thread-safety: one thread at a time.
class Sampler {
 public:
  /// `options` must be valid. `prompt` [N] is read for the repetition penalty and may go away afterwards.
  Sampler(SamplingOptions options, std::span<const TokenId> prompt);

  const SamplingOptions& options() const { return options_; }

  /// True when a choice without a mask is the argmax of the raw row, so that a device may take it.
  bool is_plain_argmax() const { return options_.is_greedy() && !adjusts_logits_; }

  /// The target's choice for absolute `position`.
  ///
  /// logits  [V] fp32  raw row; NaN or +inf anywhere is kNumeric, -inf is an id that can't be chosen
  /// mask    allowed ids, or null for all
  ///
  /// Errors: kNumeric; ConstraintDeadEnd when nothing can be chosen.
  TokenId choose(std::span<const float> logits, Position position, const TokenMask* mask = nullptr);

  /// The drafter's choice: the same rules with the same noise on its own row, whose entry i stands for ids[i]
  /// (strictly ascending; empty means that entry i is id i). No value where choose() would fail: a bad draft
  /// row must not end a request.
  std::optional<TokenId> propose(std::span<const float> logits, std::span<const TokenId> ids,
                                 Position position, const TokenMask* mask = nullptr);

  /// Counts a token that was emitted. No tentative token may stand.
  void accept(TokenId id);

  /// Counts tokens as if they had been emitted, for the rows that follow them; pop_tentative(n) takes back
  /// the last n. Cheap: nothing is copied.
  void push_tentative(TokenId id);
  void pop_tentative(int n);

 private:
  enum class Outcome { kChosen, kNotNumeric, kDeadEnd };
  struct Choice {
    Outcome outcome;
    TokenId id;
  };
  struct Row {
    std::span<const float> logits;
    std::span<const TokenId> ids;

    TokenId id_at(std::int32_t index) const {
      return ids.empty() ? index : ids[static_cast<std::size_t>(index)];
    }
    std::optional<std::size_t> index_of(TokenId id) const;
  };

  Choice choose_from(Row row, Position position, const TokenMask* mask);
  std::span<const float> adjusted(const Row& row, const TokenMask* mask);
  void apply_mask(const Row& row, const TokenMask& mask);
  double bias_of(TokenId id) const;
  TokenId sample(const Row& row, const RowMaximum& maximum, Position position);
  TokenId draw(const Row& row, Position position) const;
  TokenId draw_from_all(const Row& row, const RowMaximum& maximum, Position position) const;

  SamplingOptions options_;
  bool adjusts_logits_;
  PenaltyCounts counts_;
  std::vector<float> scratch_;         // [V] the adjusted row
  std::vector<Candidate> candidates_;  // survivors in rank order
};

}  // namespace mererun
