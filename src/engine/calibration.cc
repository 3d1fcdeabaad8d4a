#include "engine/calibration.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "decode/prefill.h"

namespace mererun {
namespace {

constexpr double kBudgetSeconds = 1.0;
constexpr double kBudgetBehindSeconds = 0.1;
constexpr int kTrials = 5;
constexpr int kPromptTokens = 32;

/// Ids that differ, as those of text do: equal rows would choose equal experts and make a wide pass look
/// cheap.
std::vector<TokenId> varied_ids(int count, int vocabulary, std::uint32_t seed) {
  std::vector<TokenId> ids;
  std::uint32_t x = seed;
  for (int i = 0; i < count; ++i) {
    x = x * 1664525U + 1013904223U;  // Numerical Recipes; its high bits do
    ids.push_back(static_cast<TokenId>((std::uint64_t{x} * static_cast<std::uint64_t>(vocabulary)) >> 32));
  }
  return ids;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

enum class Outcome { kCommit, kDiscard };

/// One round as decoding runs it: a single row commits as it goes, more are verified and then committed. A
/// round whose outcome is discarded is a verification at any width and leaves the state.
double time_round(Model& model, SequenceState& state, VerifyLog& log, int width,
                  Outcome outcome = Outcome::kCommit) {
  const std::vector<TokenId> ids = varied_ids(width, model.config().vocabulary, 2);
  const Stopwatch watch;
  std::optional<VerifyTransaction> transaction;
  if (width > 1 || outcome == Outcome::kDiscard) transaction.emplace(state, log, width);
  const PassSegment segment{&state, transaction ? &*transaction : nullptr, 0, width};
  const TensorView hidden = model.decoder().forward(ids, {&segment, 1});
  const TensorView logits = model.decoder().logits(hidden);
  const TensorView choices = model.activations().ids(width);
  model.ops().argmax_rows({.logits = logits, .ids = choices});
  if (transaction && outcome == Outcome::kCommit) transaction->commit(width, hidden);
  model.ops().synchronize();
  return watch.seconds();
}

struct DraftTimes {
  std::vector<double> flush;       // evaluating one waiting transition
  std::vector<double> wide_flush;  // evaluating as many as a round can leave
  std::vector<double> choice;      // choosing a draft
  std::vector<double> chain;       // evaluating a draft for the next
};

void time_draft(Model& model, SequenceState& state, TensorView hidden, DraftTimes& times) {
  MtpHead& head = *model.head();
  const std::vector<TokenId> ids = varied_ids(hidden.rows, model.config().vocabulary, 3);
  KvCache cache = state.history()->cache().fork();
  Stopwatch watch;
  const TensorView out = head.forward(hidden.row_range(0, 1), {ids.data(), 1}, cache.length(), 0, cache);
  model.ops().synchronize();
  times.flush.push_back(watch.restart());
  head.argmax_tokens(head.draft_logits(out));
  times.choice.push_back(watch.restart());
  head.forward(out, {ids.data(), 1}, cache.length() + 1, 0, cache);
  model.ops().synchronize();
  times.chain.push_back(watch.restart());
  KvCache other = state.history()->cache().fork();
  watch.restart();
  head.forward_last(hidden, ids, other.length(), 0, other);
  model.ops().synchronize();
  times.wide_flush.push_back(watch.restart());
}

/// `width` copies of the state's last hidden row.
Buffer hidden_rows(Model& model, const SequenceState& state, int width) {
  const TensorView row = state.last_hidden();
  const std::size_t bytes = static_cast<std::size_t>(row.cols) * sizeof(float);
  Buffer rows = model.ops().allocate(bytes * static_cast<std::size_t>(width));
  for (int i = 0; i < width; ++i)
    model.ops().copy(rows.as<std::byte>() + static_cast<std::size_t>(i) * bytes, row.data, bytes);
  return rows;
}

/// A round of d drafts evaluates what waits, chooses d times, and evaluates d - 1 drafts for the next one. A
/// draft that is accepted becomes one more waiting transition of the next round: that is part of its cost.
void set_draft_cost(MeasuredCost& cost, DraftTimes times, int width) {
  const double flush = median(std::move(times.flush));
  const double chain = median(std::move(times.chain));
  const double extra_row =
      width > 1 ? (median(std::move(times.wide_flush)) - flush) / static_cast<double>(width - 1) : 0.0;
  cost.waiting_row = std::max(0.0, extra_row);
  cost.draft_step = median(std::move(times.choice)) + chain + cost.waiting_row;
  cost.flush = std::max(0.0, flush - chain);
}

/// Fills widths that were not measured on the line between their measured neighbours.
void interpolate(std::vector<double>& verify) {
  std::size_t last = 0;
  for (std::size_t i = 1; i < verify.size(); ++i) {
    if (verify[i] == 0) continue;
    for (std::size_t k = last + 1; k < i; ++k)
      verify[k] = verify[last] +
                  (verify[i] - verify[last]) * static_cast<double>(k - last) / static_cast<double>(i - last);
    last = i;
  }
}

/// Interleaved trials, so that a machine that speeds up or slows down meanwhile favours no width.
std::vector<double> measure_rounds(Model& model, SequenceState& state, VerifyLog& log, int width) {
  std::vector<int> order = {1, width};  // first what interpolation needs
  for (int w = 2; w < width; ++w) order.push_back(w);
  if (width == 1) order.pop_back();
  std::vector<std::vector<double>> times(static_cast<std::size_t>(width));
  const Stopwatch budget;
  for (int trial = 0; trial < kTrials; ++trial) {
    for (const int w : order) {
      const bool needed = trial == 0 && (w == 1 || w == width);
      if (!needed && budget.seconds() >= kBudgetSeconds) continue;
      times[static_cast<std::size_t>(w) - 1].push_back(time_round(model, state, log, w));
    }
  }
  std::vector<double> verify;
  for (auto& samples : times) verify.push_back(samples.empty() ? 0.0 : median(std::move(samples)));
  interpolate(verify);
  return verify;
}

/// Verifications that are not committed, at the least and the most rows, and drafts.
void measure_probes(Model& model, SequenceState& state, VerifyLog& log, int width, double seconds,
                    CostMeasurement& found) {
  const Buffer rows = hidden_rows(model, state, width);
  const TensorView hidden = make_view(rows.data(), DType::kF32, width, state.last_hidden().cols);
  std::vector<double> narrow, wide;
  DraftTimes drafts;
  const Stopwatch budget;
  for (int trial = 0; trial < kTrials && (trial == 0 || budget.seconds() < seconds); ++trial) {
    narrow.push_back(time_round(model, state, log, 1, Outcome::kDiscard));
    wide.push_back(time_round(model, state, log, width, Outcome::kDiscard));
    time_draft(model, state, hidden, drafts);
  }
  found.narrow_probe = median(std::move(narrow));
  found.wide_probe = median(std::move(wide));
  set_draft_cost(found.cost, std::move(drafts), width);
}

}  // namespace

CostMeasurement measure_cost(Model& model, VerifyLog& log, int width) {
  SequenceState state = model.new_sequence();
  const std::vector<TokenId> prompt = varied_ids(kPromptTokens, model.config().vocabulary, 1);
  Prefill(model, state, prompt, {}).run();
  time_round(model, state, log, width);  // touches every buffer once

  CostMeasurement found;
  found.cost.verify = measure_rounds(model, state, log, width);
  measure_probes(model, state, log, width, kBudgetSeconds, found);
  return found;
}

MeasuredCost measure_cost_behind(Model& model, SequenceState& state, VerifyLog& log,
                                 const CostMeasurement& base) {
  CostMeasurement here{.cost = base.cost};
  const int width = static_cast<int>(base.cost.verify.size());
  time_round(model, state, log, width, Outcome::kDiscard);  // touches pages and buffers once
  measure_probes(model, state, log, width, kBudgetBehindSeconds, here);
  const double narrow = here.narrow_probe - base.narrow_probe;
  const double wide = here.wide_probe - base.wide_probe;
  for (int i = 0; i < width; ++i) {
    const double part = width > 1 ? static_cast<double>(i) / (width - 1) : 0.0;
    double& time = here.cost.verify[static_cast<std::size_t>(i)];
    time = std::max(time / 2, time + narrow + (wide - narrow) * part);  // noise must not make it nothing
  }
  return here.cost;
}

}  // namespace mererun
