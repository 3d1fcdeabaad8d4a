#include "kernels/cuda/affine_linear.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cuda/affine_variants.h"

namespace mererun::cuda {

bool has_warpgroup_kernel(const LaunchContext& context, const AffineView& layout) {
  return context.has_warpgroup_mma && layout.is_common() && layout.groups() % 2 == 0;
}

CodeOrder code_order(const LaunchContext& context, int rows) {
  if (rows <= kMostNarrowRows) return CodeOrder::kRows;
  return rows >= kTiledRows && context.has_warpgroup_mma ? CodeOrder::kPlanes : CodeOrder::kLanes;
}

CodeOrder code_order(const LaunchContext& context, const AffineView& layout, int rows) {
  if (!layout.is_common()) return CodeOrder::kLanes;
  if (rows >= kTiledRows && !has_warpgroup_kernel(context, layout)) return CodeOrder::kLanes;
  return code_order(context, rows);
}

void run_affine(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x) {
  const AffineView& w = targets[0].weight;
  if (x.order == CodeOrder::kPlanes) return run_affine_warpgroups(context, targets, x);
  const AffineVariant run = !w.is_common()       ? run_affine_any
                            : w.stored_bits == 4 ? run_affine_4bit
                                                 : run_affine_8bit;
  run(context, scratch, targets, x);
}

void fail_no_room(const AffineView& layout) {
  fail_expected(ErrorCode::kUnsupported, "linear", "rows that fit in shared memory",
                fmt::format("{} columns in groups of {}", layout.in, layout.group));
}

bool can_pair(const AffineView& gate, const AffineView& up) {
  return gate.is_common() && gate.stored_bits == 4 && gate.same_layout(up) && gate.out == up.out;
}

}  // namespace mererun::cuda
