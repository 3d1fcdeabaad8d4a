#pragma once

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/device_scratch.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/launch.h"
#include "kernels/experts.h"

namespace mererun::cuda {

// The whole of expert_mlp for a few rows in one kernel. Blocks make the list of experts for themselves; they
// compute and code hidden rows, meet, and then each of them owns some columns of the output: down projections
// of all experts and their sum. The shared expert is one more expert, which every row has chosen.

/// Gate, up and down of a layer.
struct ExpertViews {
  AffineView gate, up, down;
};

/// What launches share; the meeting place of blocks is zero when it is made.
struct FewExpertsScratch {
  DeviceScratch codes, sides, meeting;
};

/// Whether run_few_experts serves so many rows of this layout: 4 bits in groups of 64 with bf16 sides, down
/// projections of one slice.
bool can_run_few_experts(const LaunchContext& context, const ExpertViews& experts, const ExpertMlpParams& p);
/// Whether it can make the choice too: over the chosen alone, among experts that a warp holds in registers.
bool can_choose_few(const RouteExpertsParams& p);
/// Whether the shared expert can be among them: it has their shape and layout.
bool can_join_experts(const ExpertViews& experts, const ExpertViews& shared);

/// `shared`: null if the rows of p.shared.out_scratch are there, or no shared expert is. `x`: codes of p.x in
/// groups of 64. `route`: the choice to make first, written to its ids and weights, which are those of p; or
/// null.
void run_few_experts(const LaunchContext& context, FewExpertsScratch& scratch, const ExpertViews& experts,
                     const ExpertViews* shared, const ExpertMlpParams& p, const ActivationCodes& x,
                     const RouteExpertsParams* route);

}  // namespace mererun::cuda
