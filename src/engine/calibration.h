#pragma once

#include "cache/verify_transaction.h"
#include "decode/depth_policy.h"
#include "model/model.h"

namespace mererun {

/// Times a round (evaluation, choice, commit) at widths 1..width, one draft step, and the evaluation of a
/// waiting transition, on a scratch sequence: medians of five interleaved trials, or of what fits in about a
/// second; widths that do not fit are interpolated. It decides only how many drafts are made, never a token.
MeasuredCost measure_cost(Model& model, VerifyLog& log, int width);

}  // namespace mererun
