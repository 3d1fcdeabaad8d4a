#include "decode/mtp_drafter.h"

#include <limits>

#include "base/error.h"
#include "decode/draft_history_pass.h"
#include "decode/token_selection.h"

namespace mererun {
namespace {
constexpr int kShortlist = 32;  // rows that coarse scores send on to exact ones
}

MtpDrafter::MtpDrafter(Model& model) : model_(model) {
  MERERUN_CHECK(model.head() != nullptr, "the model has a draft head");
  const DraftOutput& output = model.head()->output();
  scores_.resize(static_cast<std::size_t>(output.rows));
  if (output.vocabulary) {
    compact_ids_.reserve(static_cast<std::size_t>(output.rows));
    for (int r = 0; r < output.rows; ++r) compact_ids_.push_back(output.vocabulary->compact_id_to_token(r));
  }
}

MtpDrafter::Proposal MtpDrafter::propose(TensorView output, const DraftRequest& request, Position position,
                                         const TokenMask* mask) {
  MtpHead& head = *model_.head();
  const bool is_plain = request.sampler.is_plain_argmax();
  if (is_plain && head.output().shortlist != nullptr) return propose_from_shortlist(output, mask);
  const TensorView logits = head.draft_logits(output);
  if (is_plain) {
    Proposal proposal{.id = head.argmax_tokens(logits).front()};
    if (request.policy != nullptr && model_.ops().is_host())
      proposal.chance = chance_of_largest({logits.row<const float>(0), scores_.size()});
    if (mask == nullptr || mask->allows(proposal.id)) return proposal;
  }
  model_.ops().download(scores_.data(), logits.data, scores_.size() * sizeof(float));
  return {.id = request.sampler.propose(scores_, compact_ids_, position, mask).value_or(-1)};
}

MtpDrafter::Proposal MtpDrafter::propose_from_shortlist(TensorView output, const TokenMask* mask) {
  MtpHead& head = *model_.head();
  const TensorView input = head.output_input(output);
  const TensorView coarse = head.coarse_scores(input);
  model_.ops().download(scores_.data(), coarse.data,
                        scores_.size() * sizeof(float));  // padding rows stay out
  for (std::size_t row = 0; row < scores_.size(); ++row) {
    const bool is_allowed = mask == nullptr || mask->allows(compact_ids_[row]);
    if (!is_allowed || !(scores_[row] < std::numeric_limits<float>::infinity()))
      scores_[row] = -std::numeric_limits<float>::infinity();
  }
  std::vector<Candidate> shortlist;
  select_top_k(scores_, kShortlist, shortlist);
  std::vector<std::int32_t> rows;
  for (const Candidate& candidate : shortlist) rows.push_back(candidate.index);
  if (rows.empty()) return {};
  const std::vector<float> exact = head.exact_scores(input, rows);
  int best = -1;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    if (!(exact[j] < std::numeric_limits<float>::infinity())) continue;  // NaN never wins
    const auto at = static_cast<std::size_t>(best);
    if (best < 0 || exact[j] > exact[at] || (exact[j] == exact[at] && rows[j] < rows[at]))
      best = static_cast<int>(j);
  }
  if (best < 0) return {};
  return {.id = compact_ids_[static_cast<std::size_t>(rows[static_cast<std::size_t>(best)])],
          .chance = chance_of_largest(exact)};
}

namespace {

/// Whether a round that has `drafted` drafts takes one more. `reach`: the chance that all of them are right,
/// if the drafter can tell.
bool wants_another(const DraftRequest& request, int drafted, std::optional<double> reach) {
  if (request.policy == nullptr || !reach) return drafted < request.depth;
  return drafted < request.limit && request.policy->goes_on(drafted, *reach);
}

}  // namespace

void MtpDrafter::draft(const DraftRequest& request, std::vector<TokenId>& drafts) {
  MtpHead& head = *model_.head();
  DraftHistory& history = *request.state.history();
  // The verification's rows of the n-gram table are read while the head computes.
  Decoder& decoder = model_.decoder();
  announced_.assign(1, request.pending);
  decoder.expect(request.state, {}, announced_);
  std::unique_ptr<TokenConstraint> constraint;
  if (request.constraint != nullptr) constraint = request.constraint->clone();

  // A round that failed after its drafts leaves nothing waiting; the head's output of then is gone, so this
  // round is a serial step.
  if (history.waiting() == 0) return;
  TensorView output = evaluate_waiting(head, history, model_.limits().max_rows);
  const Position first = request.state.length() + 1;  // the pending token takes length()
  int tentative = 0;
  double reach = 1;  // the chance of all drafts so far
  for (int j = 0;; ++j) {
    const auto [id, chance] = propose(output, request, first + j, constraint ? constraint->mask() : nullptr);
    if (id < 0) break;
    drafts.push_back(id);
    decoder.expect(request.state, announced_, {&id, 1});
    announced_.push_back(id);
    if (!wants_another(request, j + 1, chance ? std::optional(reach *= *chance) : std::nullopt)) break;
    if (constraint) {
      if (const TokenMask* mask = constraint->mask(); mask != nullptr && !mask->allows(id)) break;
      constraint->accept(id);
    }
    request.sampler.push_tentative(id);
    ++tentative;
    output = head.forward(output, {&id, 1}, history.evaluated() + j, history.base(), history.cache());
  }
  request.sampler.pop_tentative(tentative);
}

}  // namespace mererun
