#pragma once

#include "cache/verify_transaction.h"
#include "decode/depth_policy.h"
#include "model/model.h"

namespace mererun {

/// Times a round (evaluation, choice, commit) at widths 1..width, one draft step, and the evaluation of a
/// waiting transition, on a scratch sequence: medians of five interleaved trials, or of what fits in about a
/// second; widths that do not fit are interpolated. It decides only how many drafts are made, never a token.
MeasuredCost measure_cost(Model& model, VerifyLog& log, int width);

/// `base`, which was measured behind a short text, for rounds behind the text that `state` holds: attention
/// grows with it, and more for the many rows of a verification than for one. Times widths 1 and `width` and a
/// draft step on the state itself, without committing anything, and scales the widths between. `width` >= 2;
/// `state` has a draft history.
MeasuredCost measure_cost_behind(Model& model, SequenceState& state, VerifyLog& log, const MeasuredCost& base,
                                 int width);

}  // namespace mererun
