#include "kernels/cuda/few_experts.h"

#include <algorithm>

#include "kernels/cuda/affine_linear.h"
#include "kernels/cuda/few_block.cuh"

namespace mererun::cuda {

inline namespace few_experts_cu {

namespace nm = numerics;

constexpr int kMostFewRows = 16;  // more leave too little shared memory for the stream
constexpr int kMostStages = 8, kFewestStages = 2;

__global__ void __launch_bounds__(kFewThreads, 1)
    few_experts_kernel(const __grid_constant__ FewExpertsLaunch p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) std::uint8_t few_shared[];
  FewEntries entries(p, few_shared);
  FewStream stream(entries, few_shared);
  FewExpertsBlock(entries, stream, few_shared).run();
#endif
}

/// Lays out shared memory, with as many stages as fit; returns the bytes.
int lay_shared(FewExpertsLaunch& p, int limit) {
  int end = 0;
  const auto take = [&](int bytes) {
    const int at = end;
    end += (bytes + 15) / 16 * 16;
    return at;
  };
  const int n = p.assignments;
  p.at.full = take(kMostStages * static_cast<int>(sizeof(BulkBarrier)));
  p.at.filled = take(kMostStages * 4);
  p.at.left = take(kMostStages * 4);
  p.at.source = take(n * 4);
  p.at.place = take(n * 4);
  p.at.expert = take(n * 4);
  p.at.first = take((n + 1) * 4);
  p.at.marks = take(2 * kFewWarps * 4);
  p.at.weights = take(n * 4);
  p.at.share = take(p.rows * 4);
  p.at.residual = take(p.rows * kTileRows * 4);
  p.at.hidden = take(2 * p.spans_at_once * kSpanFloats * 4);
  p.at.y = take((n + p.rows) * kTileRows * 4);
  p.at.joins = take(kFewWarps * kJoinFloats * 4);
  p.at.x = take((p.x.code_vectors() + p.x.row_side_vectors()) * 16);
  p.at.stages = end;
  p.stages = std::min(std::max(limit - end, 0) / p.stage_bytes, kMostStages);
  return end + p.stages * p.stage_bytes;
}

/// What a launch takes of its weights and shapes.
FewExpertsLaunch shape_of(const ExpertViews& experts, const ExpertViews* shared, const ExpertMlpParams& p) {
  FewExpertsLaunch to{};
  const auto records = [](const AffineView& stack, const AffineView& own) {
    return ExpertRecords{stack.records, own.records, stack.expert_bytes(),
                         static_cast<int>(stack.tile_bytes())};
  };
  const ExpertViews own = shared == nullptr ? ExpertViews{} : *shared;
  to.gate = records(experts.gate, own.gate);
  to.up = records(experts.up, own.up);
  to.down = records(experts.down, own.down);
  to.gate_groups = experts.gate.groups();
  to.down_groups = experts.down.groups();
  to.x.rows = p.x.rows;
  to.x.in = p.x.cols;
  to.x.group = experts.gate.group;
  to.rows = p.x.rows;
  to.chosen = p.ids.cols;
  to.assignments = to.rows * to.chosen;
  to.columns = p.out.cols;
  to.tiles = experts.down.tiles();
  to.slices = nm::slice_count(experts.gate.in);
  to.teams = kFewWarps / to.slices;
  to.spans = experts.gate.out / kSpanRows;
  to.spans_at_once = std::max(to.teams / kSpanTiles, 1);
  to.shared_entries = shared == nullptr ? 0 : static_cast<int>(blocks_for(p.x.rows, kFewColumns));
  to.stage_bytes = std::max(2 * to.gate.tile_bytes, to.down.tile_bytes);
  to.packed = to.stage_bytes / to.down.tile_bytes;
  return to;
}

ActivationCodes hidden_codes(const LaunchContext& context, FewExpertsScratch& scratch, int rows, int in) {
  ActivationCodes codes;
  codes.rows = rows;
  codes.in = in;
  codes.group = kSpanRows;
  codes.codes = static_cast<uint4*>(scratch.codes.get(codes_bytes(rows, in), context));
  codes.sides = static_cast<float2*>(scratch.sides.get(sides_bytes(rows, in, codes.group), context));
  return codes;
}

}  // namespace few_experts_cu

bool can_run_few_experts(const LaunchContext& context, const ExpertViews& experts, const ExpertMlpParams& p) {
  const AffineView& down = experts.down;
  if (!context.has_bulk_copy || p.x.rows > kMostFewRows || p.x.rows * p.ids.cols > kFewThreads ||
      !can_pair(experts.gate, experts.up) || !down.is_common() || down.stored_bits != 4 ||
      nm::slice_count(down.in) != 1) {
    return false;
  }
  FewExpertsLaunch shape = shape_of(experts, nullptr, p);
  lay_shared(shape, context.shared_bytes_per_block);
  return shape.stages >= kFewestStages;
}

bool can_choose_few(const RouteExpertsParams& p) {
  const int rows = p.logits.rows, experts = p.logits.cols, chosen = p.ids.cols;
  return p.normalise && p.forced_ids.empty() && chosen <= 32 &&
         static_cast<std::int64_t>(rows) * experts <= 32 * kFewThreads &&
         FewChoice::bytes(experts, rows, chosen) <= kFewWarps * kJoinFloats * 4;
}

bool can_join_experts(const ExpertViews& experts, const ExpertViews& shared) {
  return can_pair(experts.gate, shared.gate) && can_pair(experts.up, shared.up) &&
         experts.down.same_layout(shared.down);
}

void run_few_experts(const LaunchContext& context, FewExpertsScratch& scratch, const ExpertViews& experts,
                     const ExpertViews* shared, const ExpertMlpParams& p, const ActivationCodes& x,
                     const RouteExpertsParams* route) {
  FewExpertsLaunch launched = shape_of(experts, shared, p);
  launched.x = x;
  launched.hidden = hidden_codes(context, scratch, launched.assignments + (shared == nullptr ? 0 : p.x.rows),
                                 experts.down.in);
  if (route != nullptr) launched.route = route_view(*route);
  launched.ids = matrix<const int>(p.ids);
  launched.weights = matrix<const float>(p.weights);
  if (!p.shared.empty()) {
    launched.shared_rows = matrix<const float>(p.shared.out_scratch);
    launched.shared_logits = matrix<const float>(p.shared.logits);
  }
  launched.residual = matrix<const float>(p.residual);
  launched.out = matrix<float>(p.out);
  launched.meeting = scratch.meeting.get_array<unsigned>(1, context);
  const auto bytes = static_cast<std::size_t>(lay_shared(launched, context.shared_bytes_per_block));
  allow_all_shared<few_experts_kernel>(context);
  launch(context, "expert_mlp", few_experts_kernel,
         {dim3(static_cast<unsigned>(context.multiprocessors)), dim3(kFewThreads), bytes, true}, launched);
}

}  // namespace mererun::cuda
