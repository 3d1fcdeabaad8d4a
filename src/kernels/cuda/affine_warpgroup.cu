#include "kernels/cuda/affine_middle.cuh"
#include "kernels/cuda/affine_variants.h"
#include "kernels/cuda/affine_warpgroup.cuh"
#include "kernels/cuda/expert_work.cuh"
#include "kernels/cuda/linear_work.cuh"

// Compiled for compute capability 9.0a alone: launched where LaunchContext::has_warpgroup_mma.

namespace mererun::cuda {

inline namespace affine_warpgroup_cu {

/// `parts` blocks for each of `wholes`: columns of a run of units, or units of an entry.
template <class Kernel, auto kKernel, class Work>
void launch_warpgroups(const LaunchContext& context, const char* where, const AffineView& layout,
                       const ActivationCodes& x, const Work& work, std::int64_t wholes, unsigned parts) {
  AffineWarpgroupLaunch p;
  p.layout = layout;
  p.x = x;
  p.parts = static_cast<int>(parts);
  allow_all_shared<kKernel>(context);
  launch(context, where, kKernel,
         {dim3(static_cast<unsigned>(wholes) * parts), dim3(Kernel::kThreads),
          static_cast<std::size_t>(Kernel::shared_bytes(layout.in))},
         work, p);
}

template <int kBits>
void run_linears(const LaunchContext& context, std::span<const AffineTarget> targets,
                 const ActivationCodes& x) {
  using Work = LinearWork<1>;
  using Kernel = AffineWarpgroupKernel<kBits, 1, 3, false, Work>;
  const Work work = make_linear_work<1>(targets);
  launch_warpgroups<Kernel, affine_warpgroup_kernel<kBits, 1, 3, false, Work>>(
      context, "linear", targets[0].weight, x, work, blocks_for(work.units(), Kernel::kUnits),
      blocks_for(x.rows, Kernel::kColumns));
}

template <bool kPaired>
void run_experts(const LaunchContext& context, const AffineView& layout, const ExpertWork& work,
                 const ActivationCodes& x) {
  using Kernel = AffineWarpgroupKernel<4, 2, 2, kPaired, ExpertWork>;
  static_assert(Kernel::kColumns == kWideEntry);
  launch_warpgroups<Kernel, affine_warpgroup_kernel<4, 2, 2, kPaired, ExpertWork>>(
      context, "expert_mlp", layout, x, work,
      most_entries(work.list.assignments(), work.list.experts, work.list.width),
      blocks_for(work.tiles, Kernel::kUnits));
}

template <int kBits, int kRows>
void run_middle(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x) {
  using Kernel = MiddleKernel<kBits, kRows>;
  const LinearWork<1> work = make_linear_work<1>(targets);
  const AffineView& layout = targets[0].weight;
  const MiddlePlan plan = plan_middle(Kernel::kColumns, layout, work.units(), limits_of(context));
  const int pieces = static_cast<int>(blocks_for(x.rows, kRows));
  MiddleLaunch p;
  p.x = x;
  p.groups = layout.groups();
  p.slice_shift = std::countr_zero(static_cast<unsigned>(numerics::slice_count(layout.in)));
  p.split_shift = plan.split_shift;
  p.member_shift = plan.member_shift;
  p.blocks = plan.blocks;
  p.stages = plan.stages;
  if (plan.split_shift > 0) {
    const auto meetings =
        static_cast<std::size_t>(blocks_for(work.units(), 4)) * static_cast<std::size_t>(pieces);
    p.partials =
        scratch.partials.get_array<float>((meetings << plan.split_shift) * kRunRows * kRows, context);
    p.tickets = scratch.tickets.get_array<int>(16 * meetings, context);
  }
  constexpr auto kKernel = middle_kernel<kBits, kRows>;
  allow_all_shared<kKernel>(context);
  launch(context, "linear", kKernel,
         {dim3(static_cast<unsigned>(pieces * plan.blocks << plan.split_shift)),
          dim3(static_cast<unsigned>(128 * plan.warpgroups)), static_cast<std::size_t>(plan.shared_bytes)},
         work, p);
}

template <int kBits>
void run_middle(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x) {
  if (x.rows <= kBlockColumns / 2) return run_middle<kBits, kBlockColumns / 2>(context, scratch, targets, x);
  run_middle<kBits, kBlockColumns>(context, scratch, targets, x);
}

}  // namespace affine_warpgroup_cu

void run_affine_middle(const LaunchContext& context, AffineScratch& scratch,
                       std::span<const AffineTarget> targets, const ActivationCodes& x) {
  if (targets[0].weight.stored_bits == 4) {
    run_middle<4>(context, scratch, targets, x);
  } else {
    run_middle<8>(context, scratch, targets, x);
  }
}

void run_affine_warpgroups(const LaunchContext& context, std::span<const AffineTarget> targets,
                           const ActivationCodes& x) {
  if (targets[0].weight.stored_bits == 4) {
    run_linears<4>(context, targets, x);
  } else {
    run_linears<8>(context, targets, x);
  }
}

void run_experts_warpgroups(const LaunchContext& context, const AffineView& layout, const ExpertWork& work,
                            const ActivationCodes& x) {
  run_experts<false>(context, layout, work, x);
}

void run_experts_gated_warpgroups(const LaunchContext& context, const AffineView& layout,
                                  const ExpertWork& work, const ActivationCodes& x) {
  run_experts<true>(context, layout, work, x);
}

}  // namespace mererun::cuda
