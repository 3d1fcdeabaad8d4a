#include "kernels/cpu/cpu_ops.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/share.h"
#include "kernels/cpu/work_split.h"
#include "kernels/validate.h"

namespace mererun::cpu {

CpuOps::CpuOps(const CpuOptions& options)
    : kernels_(select_kernels(options.isa)),
      pool_(options.threads),
      on_converted_(options.on_converted),
      workers_(static_cast<std::size_t>(pool_.size())) {
  reserve_workers({});
}

Buffer CpuOps::allocate(std::size_t bytes) { return allocate_pages(bytes); }
void CpuOps::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}
void CpuOps::zero(void* device, std::size_t bytes) {
  if (bytes != 0) std::memset(device, 0, bytes);
}

void CpuOps::reserve_workers(const ScratchShape& shape) {
  const std::size_t bytes = worker_scratch_bytes(shape);
  for (Scratch& s : workers_) s.get<std::byte>(bytes);
}
WorkerScratch CpuOps::worker(int w) { return {workers_[static_cast<std::size_t>(w)].get<std::byte>(0)}; }

LinearHandle CpuOps::prepare_linear(const LinearSource& source) {
  validate(source);
  return std::make_shared<PackedWeight>(source, pool_, on_converted_);
}

LinearHandle CpuOps::prepare_embedding(const LinearSource& source) {
  validate(source);
  return std::make_shared<StoredWeight>(source);
}

const PackedView& packed_view(const LinearWeight* weight) {
  const auto* mine = dynamic_cast<const PackedWeight*>(weight);
  if (mine == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, "linear weight", "one that the cpu backend prepared",
                  "another");
  }
  return mine->view();
}

void CpuOps::embed_rows(const EmbedRowsParams& p) {
  validate(p);
  validate_contents(p);
  const auto* weight = dynamic_cast<const StoredWeight*>(p.weight);
  if (weight == nullptr) {
    fail_expected(ErrorCode::kInvalidArgument, "embedding", "one that the cpu backend prepared", "another");
  }
  const LinearSource& s = weight->source();
  const auto* codes = static_cast<const std::byte*>(s.weight);
  const auto* scales = static_cast<const std::byte*>(s.scales);
  const auto* biases = static_cast<const std::byte*>(s.biases);
  const auto* ids = p.ids.row<const std::int32_t>(0);
  share(p.out.rows, static_cast<std::int64_t>(p.out.rows) * p.out.cols, [&](int begin, int end, int) {
    for (int t = begin; t < end; ++t) {
      const std::int64_t id = ids[t];
      StoredRow row{.format = s.format, .dtype = s.dtype, .in = s.in, .bits = s.bits, .group = s.group};
      row.weight = codes + id * s.weight_row_bytes();
      if (s.format == WeightFormat::kAffine) {
        row.scales = scales + id * s.scale_row_bytes();
        row.biases = biases + id * s.scale_row_bytes();
      }
      kernels_.embed_row(row, p.out.row<float>(t));
    }
  });
}

void CpuOps::rms_norm(const RmsNormParams& p) {
  validate(p);
  share(p.x.rows, static_cast<std::int64_t>(p.x.rows) * p.x.cols,
        [&](int begin, int end, int) { kernels_.rms_norm(p, begin, end); });
}

void CpuOps::gated_rms_norm(const GatedRmsNormParams& p) {
  validate(p);
  // The activation costs some thirty operations an element.
  share(p.x.rows * p.heads, 4 * static_cast<std::int64_t>(p.x.rows) * p.x.cols,
        [&](int begin, int end, int) { kernels_.gated_rms_norm(p, begin, end); });
}

void CpuOps::swiglu(const SwigluParams& p) {
  validate(p);
  share_columns(p.out.rows, p.out.cols, 4 * static_cast<std::int64_t>(p.out.rows) * p.out.cols,
                [&](int t, int first, int last) { kernels_.swiglu(p, t, first, last); });
}

void CpuOps::add_rows(const AddRowsParams& p) {
  validate(p);
  share(p.out.rows, static_cast<std::int64_t>(p.out.rows) * p.out.cols,
        [&](int begin, int end, int) { kernels_.add_rows(p, begin, end); });
}

void CpuOps::argmax_rows(const ArgmaxRowsParams& p) {
  validate(p);
  auto* ids = p.ids.row<std::int32_t>(0);
  const int n = p.logits.cols;
  const int parts = p.logits.rows >= pool_.size() ? 1 : pool_.size();
  auto* found =
      partials_.get<std::int32_t>(static_cast<std::size_t>(p.logits.rows) * static_cast<std::size_t>(parts));
  const auto part_begin = [&](int part) {
    return static_cast<int>(static_cast<std::int64_t>(n) * part / parts);
  };
  share(p.logits.rows * parts, static_cast<std::int64_t>(p.logits.rows) * n, [&](int begin, int end, int) {
    for (int item = begin; item < end; ++item) {
      const int first = part_begin(item % parts);
      const int count = part_begin(item % parts + 1) - first;
      if (count == 0) {
        found[item] = -2;
        continue;
      }
      const std::int32_t best = kernels_.argmax(p.logits.row<const float>(item / parts) + first, count);
      found[item] = best < 0 ? -1 : first + best;
    }
  });
  for (int t = 0; t < p.logits.rows; ++t) {
    const auto* x = p.logits.row<const float>(t);
    std::int32_t best = -2;
    for (int part = 0; part < parts && best != -1; ++part) {
      const std::int32_t i = found[t * parts + part];
      if (i == -2) continue;
      if (i == -1 || best == -2 || x[i] > x[best]) best = i;
    }
    // Plus infinity is no number to choose by either: it would be largest.
    ids[t] = best >= 0 && x[best] == std::numeric_limits<float>::infinity() ? -1 : best;
  }
}

void CpuOps::linear(const LinearParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  views_.clear();
  for (const LinearParams::Target& target : p.targets) views_.push_back(&packed_view(target.weight));
  rows_.build(kernels_, pool_, p.x, views_);
  jobs_.clear();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    jobs_.push_back({views_[i], rows_.of(*views_[i]), p.targets[i].out, p.targets[i].residual});
    total += static_cast<std::int64_t>(views_[i]->cost()) * views_[i]->panels;
  }
  const auto run = [&](std::int64_t begin, std::int64_t end, int w) {
    CostRange range;
    for (const LinearJob& job : jobs_) {
      range = {range.end(), static_cast<std::int64_t>(job.weight->cost()), job.weight->panels};
      const int first = range.first_at(begin);
      const int last = range.first_at(end);
      if (first < last) kernels_.linear_panels(job, first, last, worker(w));
    }
  };
  constexpr std::int64_t kSerialBytes = 16 * 1024;
  total* p.x.rows <= kSerialBytes ? run(0, total, 0) : pool_.parallel_for(total, run);
}

/// A panel is the least that is computed: the panels of the rows asked for, each once or more.
void CpuOps::selected_rows(const SelectedRowsParams& p) {
  validate(p);
  const PackedView* view = &packed_view(p.weight);
  rows_.build(kernels_, pool_, p.x, {&view, 1});
  const LinearJob job{view, rows_.of(*view), p.scratch, {}};
  const auto* rows = p.rows.row<const std::int32_t>(0);
  for (int j = 0; j < p.rows.cols; ++j) {
    if (rows[j] < 0 || rows[j] >= view->out) {
      fail_expected(ErrorCode::kInvalidArgument, "selected_rows", fmt::format("rows 0..{}", view->out - 1),
                    fmt::format("{}", rows[j]));
    }
    const int panel = rows[j] / kPanelRows;
    kernels_.linear_panels(job, panel, panel + 1, worker(0));
    p.out.row<float>(0)[j] = p.scratch.row<float>(0)[rows[j]];
  }
}

void CpuOps::gated_linear(const GatedLinearParams& p) {
  validate(p);
  if (p.x.rows == 0) return;
  const PackedView* views[2] = {&packed_view(p.gate), &packed_view(p.up)};
  rows_.build(kernels_, pool_, p.x, views);
  GatedJob job{
      .gate = views[0], .up = views[1], .gate_rows = rows_.of(*views[0]), .up_rows = rows_.of(*views[1])};
  job.out = p.out.row<float>(0);
  job.out_stride = p.out.row_stride;
  pool_.parallel_for(job.gate->panels, [&](std::int64_t begin, std::int64_t end, int w) {
    kernels_.gated_panels(job, static_cast<int>(begin), static_cast<int>(end), worker(w));
  });
}

}  // namespace mererun::cpu

namespace mererun {

std::optional<CpuIsa> cpu_isa_of(const Ops& ops) {
  const auto* mine = dynamic_cast<const cpu::CpuOps*>(&ops);
  return mine == nullptr ? std::nullopt : std::optional(mine->isa());
}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
  return std::make_unique<cpu::CpuOps>(options);
}

}  // namespace mererun
