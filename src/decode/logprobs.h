#pragma once

#include <span>
#include <vector>

#include "base/types.h"

namespace mererun {

struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0;  // natural logarithm of the probability; -inf where the logit is
};

struct RowLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // at most k, by (logit desc, id asc)
};

/// Raw log-softmax of one row of target logits [V]: no mask, bias, penalty, temperature or filter. In double;
/// the denominator is summed in rank order. 0 <= k.
/// Errors: kNumeric for NaN, +inf, or a row without a finite entry. Thread-safe.
RowLogprobs row_logprobs(std::span<const float> logits, TokenId chosen, int k);

/// The `k` most probable ids of a row, as row_logprobs gives them.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int k);

}  // namespace mererun
