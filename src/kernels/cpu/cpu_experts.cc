// The routed experts: rows are gathered by expert, so that each touched expert's panels are read once.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/share.h"
#include "kernels/validate.h"

namespace mererun::cpu {

/// Fills spans_ (touched experts, ascending id) and the rows and weights of their assignments (ascending
/// row).
void CpuOps::sort_by_expert(const ExpertMlpParams& p) {
  const int k = p.ids.cols;
  const auto total = static_cast<std::size_t>(p.x.rows) * static_cast<std::size_t>(k);
  auto* rows = assigned_rows_.get<std::int32_t>(total);
  auto* weights = assigned_weights_.get<float>(total);
  next_.assign(static_cast<std::size_t>(p.gate->experts()), 0);
  for (int t = 0; t < p.x.rows; ++t) {
    for (int i = 0; i < k; ++i) ++next_[static_cast<std::size_t>(p.ids.row<const std::int32_t>(t)[i])];
  }
  spans_.clear();
  int first = 0;
  for (int e = 0; e < p.gate->experts(); ++e) {
    int& slot = next_[static_cast<std::size_t>(e)];
    const int count = slot;
    slot = first;
    if (count > 0) spans_.push_back({e, first, count});
    first += count;
  }
  for (int t = 0; t < p.x.rows; ++t) {
    for (int i = 0; i < k; ++i) {
      const int at = next_[static_cast<std::size_t>(p.ids.row<const std::int32_t>(t)[i])]++;
      rows[at] = t;
      weights[at] = p.weights.row<const float>(t)[i];
    }
  }
}

void CpuOps::allocate_form(GatheredForm& form, const PackedView& weight, int rows) {
  const auto n = static_cast<std::size_t>(rows);
  form.group = weight.format == WeightFormat::kAffine ? weight.group : 0;
  if (form.group == 0) {
    form.codes.get<float>(n * static_cast<std::size_t>(planar_length(weight.in)));
    return;
  }
  form.codes.get<std::int16_t>(n * static_cast<std::size_t>(weight.in));
  form.scales.get<float>(2 * n * static_cast<std::size_t>(weight.in / weight.group));
}

RowsView CpuOps::span_rows(const GatheredForm& form, const ExpertSpan& span, int in) const {
  RowsView v{.rows = span.count, .in = in, .group = form.group};
  auto& codes = const_cast<Scratch&>(form.codes);
  auto& scales = const_cast<Scratch&>(form.scales);
  if (form.group == 0) {
    v.planar_stride = planar_length(in);
    v.planar = codes.get<float>(0) + span.first * v.planar_stride;
    return v;
  }
  v.codes = codes.get<std::int16_t>(0) + static_cast<std::int64_t>(span.first) * in;
  v.scales = scales.get<float>(0) + 2 * static_cast<std::int64_t>(span.first) * (in / form.group);
  return v;
}

/// Copies the coded rows of x to their places beside the other rows of each expert.
void CpuOps::gather_form(GatheredForm& form, const PackedView& weight, int rows) {
  allocate_form(form, weight, rows);
  const RowsView& from = rows_.of(weight);
  const auto* row_of = assigned_rows_.get<std::int32_t>(0);
  const int in = weight.in;
  share(static_cast<int>(spans_.size()), static_cast<std::int64_t>(rows) * in / 4,
        [&](int begin, int end, int) {
          for (int s = begin; s < end; ++s) {
            const ExpertSpan& span = spans_[static_cast<std::size_t>(s)];
            const RowsView to = span_rows(form, span, in);
            for (int i = 0; i < span.count; ++i) {
              const std::int64_t row = row_of[span.first + i];
              if (form.group == 0) {
                std::memcpy(const_cast<float*>(to.planar) + i * to.planar_stride,
                            from.planar + row * from.planar_stride,
                            static_cast<std::size_t>(to.planar_stride) * sizeof(float));
                continue;
              }
              const int groups = in / form.group;
              const CodedRow at = coded_row(i, span.count, in, form.group, kTileRows);
              auto* codes = const_cast<std::int16_t*>(to.codes) + at.codes;
              auto* scales = const_cast<float*>(to.scales) + at.scales;
              const std::int16_t* from_codes = from.codes + row * in;
              const float* from_scales = from.scales + row * 2 * groups;
              for (int g = 0; g < groups; ++g) {
                std::memcpy(codes + g * at.code_stride, from_codes + g * form.group,
                            static_cast<std::size_t>(form.group) * 2);
                std::memcpy(scales + g * at.scale_stride, from_scales + 2 * g, 2 * sizeof(float));
              }
            }
          }
        });
}

/// hidden_[a] = silu(gate x) ⊙ (up x) for every assignment a. Each expert's panels are dealt to all workers.
void CpuOps::expert_hidden(const ExpertMlpParams& p) {
  const PackedView& gate = packed_view(p.gate);
  const PackedView& up = packed_view(p.up);
  const int total = p.x.rows * p.ids.cols;
  const PackedView* views[2] = {&gate, &up};
  rows_.build(kernels_, pool_, p.x, views, 1);
  gather_form(gate_form_, gate, total);
  const bool same = gate.format == up.format && gate.group == up.group;
  if (!same) gather_form(up_form_, up, total);
  const GatheredForm& up_form = same ? gate_form_ : up_form_;
  auto* hidden = hidden_.get<float>(static_cast<std::size_t>(total) * static_cast<std::size_t>(gate.out));
  const auto panels = static_cast<std::int64_t>(gate.panels);
  const auto run = [&](const ExpertSpan& span, int first, int last, int w) {
    GatedJob job;
    job.gate = &gate;
    job.up = &up;
    job.gate_rows = span_rows(gate_form_, span, gate.in);
    job.up_rows = span_rows(up_form, span, up.in);
    job.expert = span.expert;
    job.out = hidden + static_cast<std::int64_t>(span.first) * gate.out;
    job.out_stride = gate.out;
    kernels_.gated_panels(job, first, last, worker(w));
  };
  const int workers = pool_.size();
  if (panels >= 4 * workers) {  // the same share of every expert each, however many rows an expert has
    pool_.parallel_for(workers, [&](std::int64_t begin, std::int64_t end, int w) {
      for (const ExpertSpan& span : spans_) {
        run(span, static_cast<int>(panels * begin / workers), static_cast<int>(panels * end / workers), w);
      }
    });
    return;
  }
  pool_.parallel_for(panels * static_cast<std::int64_t>(spans_.size()),
                     [&](std::int64_t begin, std::int64_t end, int w) {
                       while (begin < end) {
                         const std::int64_t s = begin / panels;
                         const std::int64_t last = std::min(end, (s + 1) * panels);
                         run(spans_[static_cast<std::size_t>(s)], static_cast<int>(begin % panels),
                             static_cast<int>(last - s * panels), w);
                         begin = last;
                       }
                     });
}

void CpuOps::code_hidden(const PackedView& down, int rows) {
  allocate_form(down_form_, down, rows);
  const int in = down.in;
  const float* hidden = hidden_.get<float>(0);
  share(static_cast<int>(spans_.size()), static_cast<std::int64_t>(rows) * in, [&](int begin, int end, int) {
    for (int s = begin; s < end; ++s) {
      const ExpertSpan& span = spans_[static_cast<std::size_t>(s)];
      const RowsView to = span_rows(down_form_, span, in);
      for (int i = 0; i < span.count; ++i) {
        const float* x = hidden + static_cast<std::int64_t>(span.first + i) * in;
        if (down_form_.group == 0) {
          kernels_.planar_row(x, in, const_cast<float*>(to.planar) + i * to.planar_stride);
          continue;
        }
        const CodedRow at = coded_row(i, span.count, in, down_form_.group, kTileRows);
        kernels_.quantise_row(x, in, down_form_.group, const_cast<std::int16_t*>(to.codes) + at.codes,
                              at.code_stride, const_cast<float*>(to.scales) + at.scales, at.scale_stride);
      }
    }
  });
}

/// Adds every expert's output to its rows' sums, in ascending id; a worker owns a range of output columns.
void CpuOps::expert_output(const ExpertMlpParams& p) {
  const PackedView& down = packed_view(p.down);
  code_hidden(down, p.x.rows * p.ids.cols);
  const std::int64_t stride = down.out;
  auto* sums = sums_.get<float>(static_cast<std::size_t>(p.x.rows) * static_cast<std::size_t>(stride));
  const auto* rows = assigned_rows_.get<std::int32_t>(0);
  const auto* weights = assigned_weights_.get<float>(0);
  pool_.parallel_for(down.panels, [&](std::int64_t begin, std::int64_t end, int w) {
    const std::int64_t first = begin * kPanelRows;
    const std::int64_t last = std::min<std::int64_t>(end * kPanelRows, stride);
    for (int t = 0; t < p.x.rows; ++t) std::fill(sums + t * stride + first, sums + t * stride + last, 0.0f);
    for (const ExpertSpan& span : spans_) {
      CombineJob job{.down = &down, .rows = span_rows(down_form_, span, down.in), .expert = span.expert};
      job.row_of = rows + span.first;
      job.weight_of = weights + span.first;
      job.acc = sums;
      job.acc_stride = stride;
      kernels_.combine_panels(job, static_cast<int>(begin), static_cast<int>(end), worker(w));
    }
  });
  share(p.x.rows, static_cast<std::int64_t>(p.x.rows) * stride,
        [&](int begin, int end, int) { kernels_.finish_experts(p, sums, stride, begin, end); });
}

void CpuOps::expert_mlp(const ExpertMlpParams& p) {
  validate(p);
  validate_contents(p);
  if (p.x.rows == 0) return;
  run_shared_expert(p);
  sort_by_expert(p);
  expert_hidden(p);
  expert_output(p);
}

}  // namespace mererun::cpu
