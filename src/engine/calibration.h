#pragma once

#include "cache/verify_transaction.h"
#include "decode/round_times.h"
#include "model/model.h"

namespace mererun {

/// What drafting costs behind a short text.
struct CostMeasurement {
  MeasuredCost cost;
  // Verifications of one row and of all, not committed: what can also be timed on a state in use.
  double narrow_probe = 0;
  double wide_probe = 0;
};

/// Times a round (evaluation, choice, commit) at widths 1..width, one draft step, and the evaluation of
/// waiting transitions, on a scratch sequence: medians of five interleaved trials, or of what fits in about a
/// second; widths that do not fit are interpolated. It decides only how many drafts are made, never a token.
CostMeasurement measure_cost(Model& model, VerifyLog& log, int width);

/// The cost behind the text that `state` holds: attention grows with it, and more for the many rows of a
/// verification than for one. Times the probes and the drafts of `base` again, on the state itself, without
/// committing anything, and adds what they took longer. `state` has a draft history and room for as many rows
/// as `base` has widths.
MeasuredCost measure_cost_behind(Model& model, SequenceState& state, VerifyLog& log,
                                 const CostMeasurement& base);

}  // namespace mererun
