// Attention and the delta rule: how their work is split.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/share.h"
#include "kernels/numerics.h"
#include "kernels/validate.h"

namespace mererun::cpu {
namespace {

using numerics::kSegmentPositions;

/// Queries whose sums stay in the second-level cache while a head's keys and values stream by.
constexpr int kJobQueries = 192;

}  // namespace

void CpuOps::attention_prepare(const AttentionPrepareParams& p) {
  validate(p);
  validate_contents(p);
  reserve_workers({.head_dim = p.cache.head_dim});
  const int items = p.k.rows * (p.query_heads() + p.cache.kv_heads);
  share(items, static_cast<std::int64_t>(items) * p.cache.head_dim,
        [&](int begin, int end, int w) { kernels_.attention_prepare(p, begin, end, worker(w)); });
}

void CpuOps::attend(const AttendParams& p) {
  validate(p);
  validate_contents(p);
  if (p.q.rows == 0) return;
  const int group = p.heads / p.cache.kv_heads;
  const int block_rows = std::clamp(kJobQueries / group, 1, p.q.rows);
  const int blocks = (p.q.rows + block_rows - 1) / block_rows;
  const auto* positions = p.positions.row<const std::int32_t>(0);
  const int segments = positions[p.q.rows - 1] / kSegmentPositions + 1;
  const int whole_jobs = blocks * p.cache.kv_heads;
  reserve_workers({.head_dim = p.cache.head_dim, .queries = block_rows * group});

  // Few jobs would leave workers idle: then every segment is a job, and folding them is a second step.
  const bool by_segment = segments > 1 && whole_jobs % pool_.size() != 0 && whole_jobs < 4 * pool_.size();
  const int jobs = by_segment ? whole_jobs * segments : whole_jobs;
  const std::size_t partial = static_cast<std::size_t>(p.cache.head_dim) + 2;
  const std::size_t job_partials =
      static_cast<std::size_t>(segments) * static_cast<std::size_t>(block_rows * group) * partial;
  float* partials =
      by_segment ? partials_.get<float>(static_cast<std::size_t>(whole_jobs) * job_partials) : nullptr;
  const auto make_job = [&](int whole) {
    AttendJob job{.params = &p, .kv_head = whole % p.cache.kv_heads};
    job.first_row = whole / p.cache.kv_heads * block_rows;
    job.last_row = std::min(job.first_row + block_rows, p.q.rows);
    job.last_segment = positions[job.last_row - 1] / kSegmentPositions + 1;
    if (by_segment) job.partial = partials + static_cast<std::size_t>(whole) * job_partials;
    return job;
  };
  pool_.parallel_for(jobs, [&](std::int64_t begin, std::int64_t end, int w) {
    for (int i = static_cast<int>(begin); i < static_cast<int>(end); ++i) {
      AttendJob job = make_job(by_segment ? i / segments : i);
      if (by_segment) {
        job.first_segment = i % segments;
        job.last_segment = std::min(job.last_segment, job.first_segment + 1);
      }
      if (job.first_segment < job.last_segment) kernels_.attend(job, worker(w));
    }
  });
  if (!by_segment) return;
  pool_.parallel_for(whole_jobs, [&](std::int64_t begin, std::int64_t end, int w) {
    for (int i = static_cast<int>(begin); i < static_cast<int>(end); ++i) {
      const AttendJob job = make_job(i);
      kernels_.fold_segments(job, 0, (job.last_row - job.first_row) * group, worker(w));
    }
  });
}

void CpuOps::delta_prepare(const DeltaPrepareParams& p) {
  validate(p);
  const int items = p.inputs.rows * (p.shape.key_heads + p.shape.value_heads);
  share(items, 4 * static_cast<std::int64_t>(p.inputs.rows) * p.shape.conv_channels(),
        [&](int begin, int end, int) { kernels_.delta_prepare(p, begin, end); });
}

void CpuOps::delta_step(const DeltaStepParams& p) {
  validate(p);
  if (p.q.rows == 0) return;
  reserve_workers({.key_dim = p.shape.key_dim});
  const int blocks = p.shape.value_heads * ((p.shape.value_dim + kPanelRows - 1) / kPanelRows);
  const std::int64_t elements = static_cast<std::int64_t>(p.state.rows) * p.state.cols * p.q.rows;
  share(blocks, elements, [&](int begin, int end, int w) { kernels_.delta_step(p, begin, end, worker(w)); });
}

void CpuOps::delta_replay(const DeltaReplayParams& p) {
  validate(p);
  if (p.k.rows == 0) return;
  reserve_workers({.key_dim = p.shape.key_dim});
  const int blocks = p.shape.value_heads * ((p.shape.value_dim + kPanelRows - 1) / kPanelRows);
  const std::int64_t elements = static_cast<std::int64_t>(p.state.rows) * p.state.cols * p.k.rows;
  share(blocks, elements,
        [&](int begin, int end, int w) { kernels_.delta_replay(p, begin, end, worker(w)); });
}

void CpuOps::advance_window(const AdvanceWindowParams& p) {
  validate(p);
  // Ascending, so that a window row is read before it is overwritten.
  for (int i = 0; i < p.window.rows; ++i) {
    const int source = i + p.inputs.rows - p.window.rows;  // row of `inputs`; negative: in the old window
    const float* from =
        source >= 0 ? p.inputs.row<const float>(source) : p.window.row<const float>(source + p.window.rows);
    float* to = p.window.row<float>(i);
    if (to != from) std::memcpy(to, from, static_cast<std::size_t>(p.window.cols) * sizeof(float));
  }
}

void CpuOps::route_experts(const RouteExpertsParams& p) {
  validate(p);
  validate_contents(p);
  reserve_workers({.experts = p.logits.cols});
  share(p.logits.rows, 8 * static_cast<std::int64_t>(p.logits.rows) * p.logits.cols,
        [&](int begin, int end, int w) { kernels_.route_experts(p, begin, end, worker(w)); });
}

}  // namespace mererun::cpu
