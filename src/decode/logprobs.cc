#include "decode/logprobs.h"

#include <cstddef>

#include "base/error.h"
#include "base/f64_math.h"
#include "decode/token_selection.h"

namespace mererun {

RowLogprobs row_logprobs(std::span<const float> logits, TokenId chosen, int k) {
  const RowMaximum maximum = find_maximum(logits);
  if (!maximum.is_numeric || maximum.index < 0) {
    fail_expected(ErrorCode::kNumeric, "log-probabilities", "a row with a finite logit and no NaN",
                  maximum.is_numeric ? "only -inf" : "NaN or +inf");
  }
  MERERUN_CHECK(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size(),
                "the chosen id is in the row");
  std::vector<Candidate> candidates;
  const SoftmaxScale scale{static_cast<double>(maximum.value), 1.0};
  const double log_mass = f64_ln(ranked_mass(logits, scale, candidates));
  const auto logprob_of = [&](float logit) { return scale.exponent(logit) - log_mass; };

  RowLogprobs result;
  result.chosen = {chosen, logprob_of(logits[static_cast<std::size_t>(chosen)])};
  if (k > 0) {
    select_top_k(logits, k, candidates);
    for (const Candidate& candidate : candidates) {
      result.top.push_back({candidate.index, logprob_of(candidate.value)});
    }
  }
  return result;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int k) {
  return row_logprobs(logits, 0, k).top;
}

}  // namespace mererun
