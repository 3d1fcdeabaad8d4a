#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "model/sampling_ranges.h"

namespace mererun {

struct LogitBias {
  TokenId id = 0;
  double bias = 0;  // added to the logit
};

/// How a request chooses its tokens. The defaults are greedy decoding; sampling_ranges says what a field may
/// be.
struct SamplingOptions {
  double temperature = 0;                  // 0 is argmax
  int top_k = 0;                           // keep the k largest; 0 = off, 1 is argmax
  double top_p = 1;                        // keep the smallest prefix with this mass; 1 = off
  double min_p = 0;                        // keep what has this share of the largest probability; 0 = off
  double presence_penalty = 0;             // once for each id of the output
  double frequency_penalty = 0;            // for each occurrence in the output
  double repetition_penalty = 1;           // over prompt and output; 1 = off
  std::vector<LogitBias> logit_bias = {};  // one entry an id
  std::uint64_t seed = 0;  // key of the draws; the caller picks a random one where a request names none

  bool is_greedy() const { return temperature == 0 || top_k == 1; }
  bool has_penalties() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

/// Checks every field against its range, and bias ids against [0, vocabulary); an id occurs once.
/// Errors: kInvalidArgument; the message starts with the field's name.
void validate(const SamplingOptions& options, int vocabulary);

}  // namespace mererun
