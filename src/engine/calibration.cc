#include "engine/calibration.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "decode/prefill.h"

namespace mererun {
namespace {

constexpr double kBudgetSeconds = 1.0;
constexpr int kTrials = 3;
constexpr int kPromptTokens = 32;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double time_verify(Model& model, SequenceState& state, VerifyLog& log, int width) {
  const std::vector<TokenId> ids(static_cast<std::size_t>(width), 0);
  const Stopwatch watch;
  VerifyTransaction transaction(state, log, width);
  const PassSegment segment{&state, &transaction, 0, width};
  const TensorView hidden = model.decoder().forward(ids, {&segment, 1});
  const TensorView logits = model.decoder().logits(hidden);
  const TensorView choices = model.activations().ids(width);
  model.ops().argmax_rows({.logits = logits, .ids = choices});
  model.ops().synchronize();
  return watch.seconds();  // never committed: the state stays
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

}  // namespace

MeasuredCost measure_cost(Model& model, VerifyLog& log, int width) {
  SequenceState state = model.new_sequence();
  const std::vector<TokenId> prompt(kPromptTokens, 0);
  Prefill(model, state, prompt, {}).run();
  time_verify(model, state, log, width);  // touches every buffer once

  MeasuredCost cost;
  cost.verify.assign(static_cast<std::size_t>(width), 0.0);
  const Stopwatch budget;
  const auto measure = [&](int w) {
    std::vector<double> times;
    for (int trial = 0; trial < kTrials && (times.empty() || budget.seconds() < kBudgetSeconds); ++trial)
      times.push_back(time_verify(model, state, log, w));
    cost.verify[static_cast<std::size_t>(w) - 1] = median(std::move(times));
  };
  measure(1);
  measure(width);
  for (int w = 2; w < width && budget.seconds() < kBudgetSeconds; ++w) measure(w);
  interpolate(cost.verify);

  std::vector<double> flush, step;
  for (int trial = 0; trial < kTrials; ++trial) time_draft(model, state, flush, step);
  cost.flush = median(std::move(flush));
  cost.draft_step = median(std::move(step));
  return cost;
}

}  // namespace mererun
