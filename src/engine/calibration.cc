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
    x = x * 1664525U + 1013904223U;  // Numerical Recipes' generator; its high bits are good enough here
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

/// One evaluation of a waiting transition and one chained draft step.
void time_draft(Model& model, SequenceState& state, std::vector<double>& flush, std::vector<double>& step) {
  MtpHead& head = *model.head();
  KvCache cache = state.history()->cache().fork();
  const TokenId id = 0;
  Stopwatch watch;
  const TensorView out = head.forward(state.last_hidden(), {&id, 1}, cache.length(), 0, cache);
  model.ops().synchronize();
  flush.push_back(watch.restart());
  head.argmax_tokens(out);
  head.forward(out, {&id, 1}, cache.length() + 1, 0, cache);
  model.ops().synchronize();
  step.push_back(watch.restart());
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

}  // namespace

MeasuredCost measure_cost_behind(Model& model, SequenceState& state, VerifyLog& log, const MeasuredCost& base,
                                 int width) {
  time_round(model, state, log, width, Outcome::kDiscard);  // touches pages and buffers once
  std::vector<double> narrow, wide, flush, step;
  const Stopwatch budget;
  for (int trial = 0; trial < kTrials && (trial == 0 || budget.seconds() < kBudgetBehindSeconds); ++trial) {
    narrow.push_back(time_round(model, state, log, 1, Outcome::kDiscard));
    wide.push_back(time_round(model, state, log, width, Outcome::kDiscard));
    time_draft(model, state, flush, step);
  }
  const auto last = static_cast<std::size_t>(width) - 1;
  const double narrow_ratio = median(std::move(narrow)) / base.verify[0];
  const double wide_ratio = median(std::move(wide)) / base.verify[last];
  MeasuredCost cost = base;
  for (std::size_t i = 0; i <= last; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(last);
    cost.verify[i] = base.verify[i] * (narrow_ratio + (wide_ratio - narrow_ratio) * part);
  }
  cost.flush = median(std::move(flush));
  cost.draft_step = median(std::move(step));
  return cost;
}

MeasuredCost measure_cost(Model& model, VerifyLog& log, int width) {
  SequenceState state = model.new_sequence();
  const std::vector<TokenId> prompt = varied_ids(kPromptTokens, model.config().vocabulary, 1);
  Prefill(model, state, prompt, {}).run();
  time_round(model, state, log, width);  // touches every buffer once

  MeasuredCost cost;
  cost.verify = measure_rounds(model, state, log, width);
  std::vector<double> flush, step;
  for (int trial = 0; trial < kTrials; ++trial) time_draft(model, state, flush, step);
  cost.flush = median(std::move(flush));
  cost.draft_step = median(std::move(step));
  return cost;
}

}  // namespace mererun
