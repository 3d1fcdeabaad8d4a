#include "decode/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "decode/draft_history_pass.h"
#include "decode/history_mode.h"

namespace mererun {

Generation::Generation(const GenerationParts& parts, const GenerationLimits& limits)
    : parts_(parts), limits_(limits), statistics_(parts.policy != nullptr ? parts.policy->max_depth() : 0) {
  MERERUN_CHECK(limits.max_tokens >= 1 && limits.context_limit >= 1, "a budget and a context");
  MERERUN_CHECK(parts.state.length() >= 1, "the prompt is evaluated");
  MERERUN_CHECK(parts.drafter == nullptr || (parts.policy != nullptr && parts.log != nullptr &&
                                             parts.policy->max_depth() < parts.log->max_width()),
                "drafts need a policy and a log that is wide enough");
  chooses_on_device_ = parts.sampler.is_plain_argmax() && !parts.sink.wants_logits();
}

int Generation::depth_cap() const {
  if (parts_.drafter == nullptr) return 0;
  return draft_cap(parts_.policy->max_depth(), limits_.max_tokens - statistics_.generated(),
                   limits_.context_limit, parts_.state.length());
}

std::span<const float> Generation::host_row(int row) const {
  const auto vocabulary = static_cast<std::size_t>(parts_.model.config().vocabulary);
  return {logits_.data() + vocabulary * static_cast<std::size_t>(row), vocabulary};
}

void Generation::begin(std::span<const float> stored_logits) {
  MERERUN_CHECK(pending_ < 0 && !is_finished(), "a generation begins once");
  Model& model = parts_.model;
  if (stored_logits.empty()) {
    const TensorView row = model.decoder().logits(parts_.state.last_hidden());
    logits_.resize(static_cast<std::size_t>(row.cols));
    model.ops().download(logits_.data(), row.data, logits_.size() * sizeof(float));
  } else {
    logits_.assign(stored_logits.begin(), stored_logits.end());
  }
  const Position position = parts_.state.length();
  const TokenMask* mask = parts_.constraint != nullptr ? parts_.constraint->mask() : nullptr;
  emit(parts_.sampler.choose(host_row(0), position, mask), position, host_row(0));
  if (pending_ >= 0) statistics_.record_first_token();
  if (is_finished()) statistics_.finish();
}

/// Gives out one choice; false if the request ended without or after it.
bool Generation::emit(TokenId id, Position position, std::span<const float> logits) {
  if (parts_.constraint != nullptr) parts_.constraint->accept(id);
  const bool complete = parts_.constraint != nullptr && parts_.constraint->is_complete();
  const ChoiceOutcome outcome = parts_.sink.on_choice({id, position, logits, complete});
  finish_ = outcome.finish;
  if (outcome.is_emitted) {
    tokens_.push_back(id);
    pending_ = id;
    parts_.sampler.accept(id);
  }
  return !is_finished();
}

void Generation::cancel() {
  if (is_finished()) return;
  finish_ = FinishReason::kCancelled;
  statistics_.finish();
}

/// The transition (h, x) belongs to the history whether or not this round drafts.
void Generation::record_pending() {
  auto& history = parts_.state.history();
  if (!history || pending_recorded_) return;
  history->append(parts_.state.last_hidden(), {&pending_, 1});
  pending_recorded_ = true;
}

/// Fills rows_ with the pending token and the drafts of a round that was chosen so; returns how many.
int Generation::draft(const DepthChoice& choice) {
  rows_.assign(1, pending_);
  if (choice.depth == 0) return 0;
  drafts_.clear();
  DraftRequest request{parts_.state, pending_, choice.depth, parts_.sampler, parts_.constraint};
  if (choice.limit > 0) {
    request.policy = parts_.policy;
    request.limit = choice.limit;
  }
  parts_.drafter->draft(request, drafts_);
  MERERUN_CHECK(static_cast<int>(drafts_.size()) <= std::max(choice.depth, choice.limit),
                "a drafter proposes at most what it was asked for");
  for (const TokenId id : drafts_) {
    if (id < 0 || id >= parts_.model.config().vocabulary) break;  // no choice of the target could equal it
    rows_.push_back(id);
  }
  return static_cast<int>(rows_.size()) - 1;
}

void Generation::load_choices(TensorView logits) {
  Ops& ops = parts_.model.ops();
  if (chooses_on_device_) {
    const TensorView ids = parts_.model.activations().ids(logits.rows);
    ops.argmax_rows({.logits = logits, .ids = ids});
    choices_.resize(static_cast<std::size_t>(logits.rows));
    ops.download(choices_.data(), ids.data, choices_.size() * sizeof(TokenId));
    return;
  }
  logits_.resize(static_cast<std::size_t>(logits.rows) * static_cast<std::size_t>(logits.cols));
  ops.download(logits_.data(), logits.data, logits_.size() * sizeof(float));
}

TokenId Generation::choose_row(TensorView logits, int row, Position position) {
  const TokenMask* mask = parts_.constraint != nullptr ? parts_.constraint->mask() : nullptr;
  if (!chooses_on_device_) return parts_.sampler.choose(host_row(row), position, mask);
  const TokenId id = choices_[static_cast<std::size_t>(row)];
  if (id < 0) {
    throw Error(ErrorCode::kNumeric,
                fmt::format("logits of position {}: expected numbers, got NaN", position));
  }
  // The largest of all is the largest of the allowed ones, if it is allowed: most rows need no more.
  if (mask == nullptr || mask->allows(id)) return id;
  logits_.resize(static_cast<std::size_t>(logits.cols));
  parts_.model.ops().download(logits_.data(), logits.row_range(row, 1).data, logits_.size() * sizeof(float));
  return parts_.sampler.choose(logits_, position, mask);
}

/// Gives out the target's choices while they equal the drafts, and the first that does not. A choice is made
/// with penalties, bias and constraint as the tokens before it left them, exactly as serial decoding makes
/// it.
Generation::Walk Generation::choose_and_emit(TensorView logits, Position first) {
  Walk walk;
  const int width = static_cast<int>(rows_.size());
  for (int row = 0; row < width; ++row) {
    const TokenId choice = choose_row(logits, row, first + row);
    const bool matches = row + 1 < width && choice == rows_[static_cast<std::size_t>(row) + 1];
    const std::size_t before = tokens_.size();
    const bool goes_on =
        emit(choice, first + row, chooses_on_device_ ? std::span<const float>{} : host_row(row));
    const bool emitted = tokens_.size() > before;
    if (emitted) ++walk.emitted;
    if (emitted && matches) ++walk.accepted;
    if (!matches || !goes_on) break;
  }
  return walk;
}

/// Transitions between the tokens that this round made permanent: (hidden row i, row i + 1).
void Generation::append_confirmed(int rows, TensorView hidden) {
  auto& history = parts_.state.history();
  if (!history || rows < 2) return;
  history->append(hidden.row_range(0, rows - 1),
                  std::span<const TokenId>(rows_).subspan(1, static_cast<std::size_t>(rows) - 1));
}

namespace {

/// Times the phases of one round; without a profile it neither reads the clock nor waits for the device.
class RoundTimer {
 public:
  RoundTimer(SpeculationProfile* profile, Ops& ops) : profile_(profile), ops_(ops) {}

  /// Seconds since the last lap.
  double lap() { return profile_ == nullptr ? 0 : watch_.restart(); }
  /// The same after the device has caught up.
  double lap_synchronized() {
    if (profile_ == nullptr) return 0;
    ops_.synchronize();
    return watch_.restart();
  }
  SpeculationProfile::Round& round() { return round_; }

  /// `wanted` drafts were asked for, and `depth` were verified.
  void finish(int wanted, int depth, int accepted, double choosing) {
    if (profile_ == nullptr) return;
    profile_->sampling_seconds += choosing;
    if (wanted == 0) {
      ++profile_->serial_rounds;
      profile_->serial_seconds += round_.verify_submit + round_.verify_wait + round_.accept + round_.commit;
      return;
    }
    round_.draft_depth = depth;
    round_.accepted_drafts = accepted;
    profile_->rounds.push_back(round_);
  }

 private:
  SpeculationProfile* profile_;
  Ops& ops_;
  Stopwatch watch_;
  SpeculationProfile::Round round_;
};

}  // namespace

DraftOutlook Generation::outlook() const {
  const auto& history = parts_.state.history();
  return {.waiting = history ? history->waiting() : 0,
          .remaining = limits_.max_tokens - statistics_.generated()};
}

/// The pass over rows_. Drafts are given up where a table cannot be read: their rows may be the broken ones,
/// which serial decoding does not ask for. The transaction is kept then, so that a second failure leaves the
/// state.
TensorView Generation::forward(DepthChoice& choice, std::optional<VerifyTransaction>& transaction) {
  SequenceState& state = parts_.state;
  if (choice.depth > 0) transaction.emplace(state, *parts_.log, choice.depth + 1);
  const auto pass = [&] {
    const PassSegment segment{&state, transaction ? &*transaction : nullptr, 0, choice.depth + 1};
    return parts_.model.decoder().forward(rows_, {&segment, 1});
  };
  try {
    return pass();
  } catch (const Error& error) {
    if (choice.depth == 0 || error.code() != ErrorCode::kIo) throw;
  }
  choice.depth = 0;
  rows_.resize(1);
  transaction.emplace(state, *parts_.log, 1);
  return pass();
}

void Generation::round() {
  if (is_finished()) return;
  if (parts_.cancelled != nullptr && parts_.cancelled->load(std::memory_order_relaxed)) return cancel();
  MERERUN_CHECK(pending_ >= 0, "begin comes first");

  RoundTimer timer(parts_.profile, parts_.model.ops());
  SpeculationProfile::Round& times = timer.round();
  const Stopwatch watch;
  const int cap = depth_cap();
  DepthChoice choice{.depth = 0, .reason = DepthReason::kBudget};
  const DraftOutlook ahead = outlook();
  if (cap > 0) choice = parts_.policy->choose(cap, ahead);
  const DepthChoice chosen = choice;
  record_pending();
  choice.depth = draft(choice);
  times.draft_submit = timer.lap();
  times.draft_wait = timer.lap_synchronized();

  SequenceState& state = parts_.state;
  const Position base = state.length();
  std::optional<VerifyTransaction> transaction;
  const TensorView hidden = forward(choice, transaction);
  const TensorView logits = parts_.model.decoder().logits(hidden);
  times.verify_submit = timer.lap();
  load_choices(logits);
  times.verify_wait = timer.lap_synchronized();
  const Walk walk = choose_and_emit(logits, base + 1);
  times.accept = timer.lap();

  // Finished inside the accepted prefix: the state ends at the cut and stays usable.
  const int rows = 1 + walk.accepted;
  if (transaction) transaction->commit(rows, hidden);
  append_confirmed(rows, hidden);
  pending_recorded_ = false;
  times.commit = timer.lap_synchronized();
  timer.finish(chosen.depth, choice.depth, walk.accepted, times.accept);
  statistics_.record_round({choice, walk.accepted, walk.emitted});
  if (parts_.policy != nullptr && cap > 0) {
    // Drafts that were wanted and did not come, or were given up, are as good as wrong ones; what they took
    // is no serial round's time.
    const bool came = choice.depth > 0 || chosen.depth == 0;
    parts_.policy->update(came ? choice : chosen, walk.accepted);
    // Nor is a round that first evaluated a backlog a measure of others.
    if (came && (choice.depth == 0 || ahead.waiting <= parts_.policy->max_depth() + 1))
      parts_.policy->observe(choice.depth, watch.seconds());
  }
  if (auto& history = state.history(); history && history->waiting() >= 2 * kHistoryGroup)
    evaluate_whole_groups(*parts_.model.head(), *history, parts_.model.limits().max_rows);
  if (is_finished()) statistics_.finish();
}

}  // namespace mererun
