#pragma once

#include "base/number_range.h"

namespace mererun {

/// What sampling options may be, whoever states them: a flag, a request, a checkpoint's
/// generation_config.json.
namespace sampling_ranges {

inline constexpr NumberRange kTemperature{0, 2};
inline constexpr NumberRange kTopP{0, 1, true};
inline constexpr NumberRange kMinP{0, 1};
inline constexpr NumberRange kPresencePenalty{-2, 2};
inline constexpr NumberRange kFrequencyPenalty{-2, 2};
/// Beyond it a penalised logit may leave the range of fp32.
inline constexpr NumberRange kRepetitionPenalty{1e-6, 1e6};
inline constexpr NumberRange kLogitBias{-100, 100};

}  // namespace sampling_ranges

}  // namespace mererun
