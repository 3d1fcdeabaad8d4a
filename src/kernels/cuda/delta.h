#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/delta.h"

namespace mererun::cuda {

// Gated DeltaNet; params have been validated and hold at least one row.

void run_delta_prepare(const LaunchContext& context, const DeltaPrepareParams& p);
void run_delta_step(const LaunchContext& context, const DeltaStepParams& p);
void run_delta_replay(const LaunchContext& context, const DeltaReplayParams& p);
void run_advance_window(const LaunchContext& context, const AdvanceWindowParams& p);

}  // namespace mererun::cuda
