#include "decode/sampling_options.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

#include "base/error.h"

namespace mererun {

namespace {

void require(const NumberRange& range, double value, std::string_view field) {
  if (!range.holds(value))
    fail_expected(ErrorCode::kInvalidArgument, field, range.text(), fmt::format("{}", value));
}

}  // namespace

void validate(const SamplingOptions& options, int vocabulary) {
  namespace ranges = sampling_ranges;
  require(ranges::kTemperature, options.temperature, "temperature");
  if (options.top_k < 0) {
    fail_expected(ErrorCode::kInvalidArgument, "top_k", "an integer of at least 0",
                  fmt::format("{}", options.top_k));
  }
  require(ranges::kTopP, options.top_p, "top_p");
  require(ranges::kMinP, options.min_p, "min_p");
  require(ranges::kPresencePenalty, options.presence_penalty, "presence_penalty");
  require(ranges::kFrequencyPenalty, options.frequency_penalty, "frequency_penalty");
  require(ranges::kRepetitionPenalty, options.repetition_penalty, "repetition_penalty");
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
    require(ranges::kLogitBias, entry.bias, fmt::format("logit_bias of id {}", entry.id));
  }
}

}  // namespace mererun
