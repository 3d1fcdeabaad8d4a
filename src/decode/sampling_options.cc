#include "decode/sampling_options.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "base/error.h"

namespace mererun {

namespace {

// Written so that NaN fails.
void require(bool holds, std::string_view field, std::string_view range, double got) {
  if (!holds) fail_expected(ErrorCode::kInvalidArgument, field, range, fmt::format("{}", got));
}

void require_between(double value, double low, double high, std::string_view field) {
  require(value >= low && value <= high, field, fmt::format("a number from {} to {}", low, high), value);
}

}  // namespace

void validate(const SamplingOptions& options, int vocabulary) {
  require_between(options.temperature, 0, 2, "temperature");
  require(options.top_k >= 0, "top_k", "an integer of at least 0", options.top_k);
  require(options.top_p > 0 && options.top_p <= 1, "top_p", "a number above 0 and at most 1", options.top_p);
  require_between(options.min_p, 0, 1, "min_p");
  require_between(options.presence_penalty, -2, 2, "presence_penalty");
  require_between(options.frequency_penalty, -2, 2, "frequency_penalty");
  // Beyond it a penalised logit may leave the range of fp32.
  require_between(options.repetition_penalty, 1e-6, 1e6, "repetition_penalty");
  std::unordered_set<TokenId> seen;
  for (const LogitBias& entry : options.logit_bias) {
    if (entry.id < 0 || entry.id >= vocabulary) {
      fail_expected(ErrorCode::kInvalidArgument, "logit_bias",
                    fmt::format("ids from 0 to {}", vocabulary - 1), fmt::format("{}", entry.id));
    }
    if (!seen.insert(entry.id).second) {
      fail_expected(ErrorCode::kInvalidArgument, "logit_bias", "each id once",
                    fmt::format("{} twice", entry.id));
    }
    require_between(entry.bias, -100, 100, fmt::format("logit_bias of id {}", entry.id));
  }
}

}  // namespace mererun
