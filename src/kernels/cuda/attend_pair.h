#pragma once

#include "kernels/cuda/attend_config.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

struct Attend;

/// Queues the kernel for heads of 256 dims that leaves segments or the whole, without the fold of partials;
/// plan.block_queries is 6 or 8.
void run_attend_pair(const LaunchContext& context, const Attend& args, const AttendPlan& plan);

/// Queues the left fold of the partials of every (row, head), tiles or segments, and the gate.
void run_attend_fold(const LaunchContext& context, const Attend& args, AttendSpan span);

}  // namespace mererun::cuda
