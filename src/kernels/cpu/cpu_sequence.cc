// Attention and the delta rule: how their work is split.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/share.h"
#include "kernels/numerics.h"
#include "kernels/validate.h"

namespace mererun::cpu {
namespace {

using numerics::kSegmentTiles;
using numerics::kTilePositions;

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
  const int jobs = blocks * p.cache.kv_heads;
  reserve_workers({.head_dim = p.cache.head_dim, .queries = block_rows * group});
  std::vector<AttendJob>& all = attend_jobs_;
  all.clear();
  for (int i = 0; i < jobs; ++i) {
    AttendJob job{.params = &p, .kv_head = i % p.cache.kv_heads};
    job.first_row = i / p.cache.kv_heads * block_rows;
    job.last_row = std::min(job.first_row + block_rows, p.q.rows);
    job.last_tile = positions[job.last_row - 1] / kTilePositions + 1;
    all.push_back(job);
  }
  // Few jobs would leave workers idle.
  const int tiles = all.back().last_tile;
  if (jobs % pool_.size() != 0 && jobs < 4 * pool_.size() && tiles > 1)
    return attend_by_tile(p, tiles, block_rows * group);
  pool_.parallel_for(jobs, [&](std::int64_t begin, std::int64_t end, int w) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      kernels_.attend(all[i], worker(w));
  });
}

/// The tiles of all jobs, one after the other, are dealt out in equal runs. What a run holds of a segment
/// that another run begins is kept tile by tile, and folded when all are done.
void CpuOps::attend_by_tile(const AttendParams& p, int tiles, int queries) {
  const int parts = pool_.size();
  const auto jobs = static_cast<int>(attend_jobs_.size());
  const int segments = (tiles + kSegmentTiles - 1) / kSegmentTiles;
  const std::size_t partial =
      (static_cast<std::size_t>(p.cache.head_dim) + 2) * static_cast<std::size_t>(queries);
  float* next =
      partials_.get<float>(partial * static_cast<std::size_t>(jobs * segments + parts * (kSegmentTiles - 1)));
  loose_tiles_.assign(static_cast<std::size_t>(jobs) * static_cast<std::size_t>(tiles), nullptr);
  for (int i = 0; i < jobs; ++i, next += partial * static_cast<std::size_t>(segments)) {
    AttendJob& job = attend_jobs_[static_cast<std::size_t>(i)];
    job.segments = next;
    job.loose = loose_tiles_.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(tiles);
  }
  const auto first_of = [&](int part) { return static_cast<int>(std::int64_t{jobs} * tiles * part / parts); };
  for (int part = 0; part < parts; ++part) {
    for (int i = first_of(part); i < first_of(part + 1) && i % tiles % kSegmentTiles != 0;
         ++i, next += partial)
      loose_tiles_[static_cast<std::size_t>(i)] = next;
  }
  pool_.parallel_for(parts, [&](std::int64_t begin, std::int64_t end, int w) {
    const int last = first_of(static_cast<int>(end));
    for (int i = first_of(static_cast<int>(begin)); i < last; i = (i / tiles + 1) * tiles) {
      AttendJob job = attend_jobs_[static_cast<std::size_t>(i / tiles)];
      job.first_tile = i % tiles;
      job.last_tile = std::min(job.last_tile, last - i / tiles * tiles);
      kernels_.attend(job, worker(w));
    }
  });
  share(jobs * queries, static_cast<std::int64_t>(partial) * jobs * segments, [&](int begin, int end, int w) {
    for (int i = begin; i < end; i = (i / queries + 1) * queries) {
      const AttendJob& job = attend_jobs_[static_cast<std::size_t>(i / queries)];
      const int count = (job.last_row - job.first_row) * p.heads / p.cache.kv_heads;
      kernels_.fold_segments(job, i % queries, std::min(count, end - i / queries * queries), worker(w));
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
  const int blocks = p.shape.value_heads * ((p.shape.value_dim + kPanelRows - 1) / kPanelRows);
  const std::int64_t elements = static_cast<std::int64_t>(p.state.rows) * p.state.cols * p.k.rows;
  share(blocks, elements, [&](int begin, int end, int) { kernels_.delta_replay(p, begin, end); });
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
