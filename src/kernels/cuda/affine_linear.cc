#include "kernels/cuda/affine_linear.h"

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cuda/affine_middle_plan.h"
#include "kernels/cuda/affine_variants.h"

namespace mererun::cuda {

bool has_warpgroup_kernel(const LaunchContext& context, const AffineView& layout) {
  return context.has_warpgroup_mma && layout.is_common() && layout.groups() % 2 == 0;
}

bool has_middle_kernel(const LaunchContext& context, const AffineView& layout, int rows) {
  return context.has_warpgroup_mma && layout.is_common() &&
         plan_middle(middle_columns(rows), layout, layout.tiles(),
                     {context.multiprocessors, context.shared_bytes_per_block})
             .fits;
}

CodeOrder code_order(const LaunchContext& context, int rows) {
  if (rows <= kMostNarrowRows) return CodeOrder::kRows;
  return context.has_warpgroup_mma ? CodeOrder::kPlanes : CodeOrder::kLanes;
}

CodeOrder code_order(const LaunchContext& context, const AffineView& layout, int rows) {
  if (!layout.is_common()) return CodeOrder::kLanes;
  const int most_narrow = layout.in >= kLongColumns && has_middle_kernel(context, layout, rows)
                              ? kMostNarrowRowsOfLong
                              : kMostNarrowRows;
  if (rows <= most_narrow) return CodeOrder::kRows;
  const bool serves =
      rows >= kTiledRows ? has_warpgroup_kernel(context, layout) : has_middle_kernel(context, layout, rows);
  return serves ? CodeOrder::kPlanes : CodeOrder::kLanes;
}

void run_affine(const LaunchContext& context, AffineScratch& scratch, std::span<const AffineTarget> targets,
                const ActivationCodes& x) {
  const AffineView& w = targets[0].weight;
  if (x.order == CodeOrder::kPlanes) {
    if (x.rows < kTiledRows) return run_affine_middle(context, scratch, targets, x);
    return run_affine_warpgroups(context, targets, x);
  }
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

bool can_pair(const LaunchContext& context, const AffineView& gate, const AffineView& up, int rows) {
  return can_pair(gate, up) && code_order(context, gate, rows) == CodeOrder::kRows;
}

}  // namespace mererun::cuda
