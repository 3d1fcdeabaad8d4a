#pragma once

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/cuda/attend_config.h"
#include "kernels/cuda/launch.h"

namespace mererun::cuda {

// Attention; params have been validated and hold at least one row.

void run_attention_prepare(const LaunchContext& context, const AttentionPrepareParams& p);

/// `partials` holds plan.partial_floats floats. `row_pages` > 0: row t has a page table of its own, that many
/// entries after the one before (a plan of plan_attend_rows).
void run_attend(const LaunchContext& context, const AttendParams& p, const AttendPlan& plan, float* partials,
                int row_pages = 0);

}  // namespace mererun::cuda
