#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/types.h"
#include "decode/sampling_options.h"

namespace mererun {

/// How often each id occurs in a request's output, and which ids its prompt holds; tentative tokens stand on
/// top and can be taken away again.
///
/// Thread-safety: thread-compatible.
class PenaltyCounts {
 public:
  /// `prompt` is needed for the repetition penalty only.
  explicit PenaltyCounts(std::span<const TokenId> prompt);

  /// Counts a token of the output. No tentative token may stand.
  void accept(TokenId id);

  void push_tentative(TokenId id);
  /// Takes away the last `n` tentative tokens.
  void pop_tentative(int n);
  int num_tentative() const { return static_cast<int>(tentative_.size()); }

  /// The logit of an id after bias: repetition (v > 0 ? v / r : v * r) over prompt and output, then minus
  /// presence and frequency over the output, in double. Calls apply(id, adjust) for every id that is
  /// concerned, where adjust(double) gives the new value.
  template <typename Apply>
  void for_each_penalised(const SamplingOptions& options, const Apply& apply) const {
    for (const auto& [id, entry] : entries_) {
      if (entry.output == 0 && (options.repetition_penalty == 1 || !entry.in_prompt)) continue;
      const int output = entry.output;
      apply(id, [&options, output](double value) { return penalised(options, output, value); });
    }
  }

 private:
  struct Entry {
    std::int32_t output = 0;
    bool in_prompt = false;
  };

  static double penalised(const SamplingOptions& options, int output, double value);

  std::unordered_map<TokenId, Entry> entries_;
  std::vector<TokenId> tentative_;
};

}  // namespace mererun
