#include "decode/penalty_counts.h"

#include "base/error.h"

namespace mererun {

PenaltyCounts::PenaltyCounts(std::span<const TokenId> prompt) {
  for (const TokenId id : prompt) entries_[id].in_prompt = true;
}

void PenaltyCounts::accept(TokenId id) {
  MERERUN_CHECK(tentative_.empty(), "a token is counted while tentative ones stand");
  ++entries_[id].output;
}

void PenaltyCounts::push_tentative(TokenId id) {
  ++entries_[id].output;
  tentative_.push_back(id);
}

void PenaltyCounts::pop_tentative(int n) {
  MERERUN_CHECK(n >= 0 && n <= num_tentative(), "more tentative tokens taken away than stand");
  for (int i = 0; i < n; ++i) {
    --entries_[tentative_.back()].output;
    tentative_.pop_back();
  }
}

double PenaltyCounts::penalised(const SamplingOptions& options, int output, double value) {
  const double repetition = options.repetition_penalty;
  if (repetition != 1) value = value > 0 ? value / repetition : value * repetition;
  if (output > 0) value -= options.presence_penalty + options.frequency_penalty * output;
  return value;
}

}  // namespace mererun
