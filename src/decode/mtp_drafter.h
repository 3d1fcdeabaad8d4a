#pragma once

#include <optional>
#include <vector>

#include "decode/drafter.h"
#include "model/model.h"

namespace mererun {

/// Drafts with the model's own MTP head: evaluates what waits in the history, then chains the head on its own
/// normed output. Chained rows are written past the history's confirmed length and die with the round.
class MtpDrafter final : public Drafter {
 public:
  /// The model must have a head and outlive the drafter.
  explicit MtpDrafter(Model& model);

  void draft(const DraftRequest& request, std::vector<TokenId>& drafts) override;

 private:
  struct Proposal {
    TokenId id = -1;  // -1: none
    /// That the drafter gives it, 0 to 1; none where that is not computed: the scores stay on a device, or
    /// they are the whole vocabulary's and no policy asks.
    std::optional<double> chance = std::nullopt;
  };
  /// The token that the request's own rules choose from the head's scores.
  Proposal propose(TensorView output, const DraftRequest& request, Position position, const TokenMask* mask);

  /// The 32 best rows by coarse score, rescored exactly: the best, lowest compact id on ties, if one is a
  /// number.
  Proposal propose_from_shortlist(TensorView output, const TokenMask* mask);

  Model& model_;
  std::vector<TokenId> compact_ids_;  // token of each compact row; empty when rows are token ids
  std::vector<float> scores_;
  std::vector<TokenId> announced_;  // the pending token and the drafts of this round
};

}  // namespace mererun
