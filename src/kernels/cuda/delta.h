#pragma once

#include <span>

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/launch.h"
#include "kernels/delta.h"

namespace mererun::cuda {

// Params have been validated and hold at least one row.

void run_delta_prepare(const LaunchContext& context, const DeltaPrepareParams& p);
/// `state_is_settled`: the kernel before this one does not write the state, so that it may be read early.
void run_delta_step(const LaunchContext& context, const DeltaStepParams& p, bool state_is_settled);

/// Rows that run_delta_rule takes at most.
inline constexpr int kMostRuleRows = 32;
/// Whether run_delta_rule serves a call: heads of 128, four taps, few rows.
bool can_fuse_delta_rule(const DeltaRuleParams& p);
/// Prepare, step and norm in one launch; `codes`: of p.norm.out. Of what prepare writes only k and alpha are
/// left, and those only with a log. `state_is_settled`: as above.
void run_delta_rule(const LaunchContext& context, const DeltaRuleParams& p, const ActivationCodes& codes,
                    bool state_is_settled);

/// Layers that one launch can serve.
inline constexpr int kMostReplays = 64;
/// Calls of one shape (same_shape of any two) for at most kMostReplays layers that share no state.
void run_delta_replay(const LaunchContext& context, std::span<const DeltaReplayParams> layers);
bool same_shape(const DeltaReplayParams& a, const DeltaReplayParams& b);
void run_advance_window(const LaunchContext& context, std::span<const AdvanceWindowParams> layers);
bool same_shape(const AdvanceWindowParams& a, const AdvanceWindowParams& b);

}  // namespace mererun::cuda
