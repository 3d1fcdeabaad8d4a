#pragma once

#include "cache/draft_history.h"
#include "model/mtp_head.h"

namespace mererun {

/// Evaluates all waiting transitions, at least one, into the head's cache, in passes the arena holds. Returns
/// the head's output of the last of them, [1, H] f32, valid until the next pass.
TensorView evaluate_waiting(MtpHead& head, DraftHistory& history, int max_rows);

/// Evaluates every whole group of 256 transitions, counted from position 0; fewer than 256 wait afterwards.
void evaluate_whole_groups(MtpHead& head, DraftHistory& history, int max_rows);

}  // namespace mererun
