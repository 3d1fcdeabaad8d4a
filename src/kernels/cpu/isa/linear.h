#pragma once

// What happens to the panels' products: stored, gated, or added to an expert sum.

#include "kernels/cpu/isa/affine.h"
#include "kernels/cpu/isa/dense.h"

void product(const PackedView& w, int expert, int panel, const RowsView& in, const std::byte* planes,
             int first, int rows, LinearScratch& scratch, float (*y)[kPanelRows]) {
  if (w.format == WeightFormat::kAffine) {
    return affine_product(w, expert, panel, in, planes, first, rows, scratch, y);
  }
  dense_product(w, expert, panel, in, first, rows, y);
}

/// Activation rows of one pass: as many as leave their codes in the second-level cache while all panels go
/// by, but at least the 32 of the widest verification, which reads each weight once.
MERERUN_VEC int pass_rows(int in) {
  const int fit = (384 * 1024) / (2 * in) / kTileRows * kTileRows;
  return fit < 32 ? 32 : smaller(fit, kMaxPassRows);
}

/// Calls f(panel, first row, rows). A pass streams the panels from memory again, which costs less than
/// streaming the rows for every panel: a panel is read once for `rows` times 16 products.
template <typename F>
MERERUN_VEC void for_passes(int begin, int end, int rows, int in, F&& f) {
  const int step = pass_rows(in);
  for (int m = 0; m < rows; m += step) {
    for (int p = begin; p < end; ++p) f(p, m, smaller(step, rows - m));
  }
}

MERERUN_VEC void store_lanes(float* out, const float* y, int lanes) {
  if (lanes == kPanelRows) return store(out, load<F16>(y));
  for (int i = 0; i < lanes; ++i) out[i] = y[i];
}

void linear_panels(const LinearJob& job, int begin, int end, WorkerScratch worker) {
  auto& scratch = *reinterpret_cast<LinearScratch*>(worker.data);
  const PackedView& w = *job.weight;
  const std::byte* planes = lone_row_planes(w, job.rows, scratch);
  for_passes(begin, end, job.rows.rows, w.in, [&](int panel, int first, int rows) {
    product(w, 0, panel, job.rows, planes, first, rows, scratch, scratch.first);
    const int lanes = w.panel_rows(panel);
    for (int m = 0; m < rows; ++m) {
      float* y = scratch.first[m];
      if (!job.residual.empty()) {
        const float* residual = line<const float>(job.residual, first + m) + panel * kPanelRows;
        for (int i = 0; i < lanes; ++i) y[i] = residual[i] + y[i];
      }
      store_lanes(line<float>(job.out, first + m) + panel * kPanelRows, y, lanes);
    }
  });
}

/// Rows first + m of a panel of job.out, from its products with gate and up.
void gate_rows(const GatedJob& job, int panel, int first, int rows, float (*gate)[kPanelRows],
               const float (*up)[kPanelRows]) {
  const int lanes = job.gate->panel_rows(panel);
  for (int m = 0; m < rows; ++m) {
    for (int i = 0; i < kPanelRows; ++i) gate[m][i] = numerics::silu_f32(gate[m][i]) * up[m][i];
    store_lanes(job.out + (first + m) * job.out_stride + panel * kPanelRows, gate[m], lanes);
  }
}

void gated_panels(const GatedJob& job, int begin, int end, WorkerScratch worker) {
  auto& scratch = *reinterpret_cast<LinearScratch*>(worker.data);
  const std::byte* gate_planes = lone_row_planes(*job.gate, job.gate_rows, scratch);
  // The scratch holds the planes of one row; as a rule both weights read the same.
  const bool same = job.up_rows.codes == job.gate_rows.codes;
  const std::byte* up_planes = same ? lone_row_planes(*job.up, job.up_rows, scratch) : nullptr;
  const int step = pass_rows(job.gate->in);
  for (int first = 0; first < job.gate_rows.rows; first += step) {
    const int rows = smaller(step, job.gate_rows.rows - first);
    // Every change of matrix waits for memory: as many panels of one as the scratch holds, then of the other.
    const int panels = kMaxPassRows / rows;
    for (int p = begin; p < end; p += panels) {
      const int count = smaller(panels, end - p);
      for (int i = 0; i < count; ++i) {
        product(*job.gate, job.expert, p + i, job.gate_rows, gate_planes, first, rows, scratch,
                scratch.first + i * rows);
      }
      for (int i = 0; i < count; ++i) {
        product(*job.up, job.expert, p + i, job.up_rows, up_planes, first, rows, scratch, scratch.second);
        gate_rows(job, p + i, first, rows, scratch.first + i * rows, scratch.second);
      }
    }
  }
}

void combine_panels(const CombineJob& job, int begin, int end, WorkerScratch worker) {
  auto& scratch = *reinterpret_cast<LinearScratch*>(worker.data);
  const PackedView& w = *job.down;
  const std::byte* planes = lone_row_planes(w, job.rows, scratch);
  for_passes(begin, end, job.rows.rows, w.in, [&](int panel, int first, int rows) {
    product(w, job.expert, panel, job.rows, planes, first, rows, scratch, scratch.first);
    const int lanes = w.panel_rows(panel);
    for (int m = 0; m < rows; ++m) {
      float* acc = job.acc + job.row_of[first + m] * job.acc_stride + panel * kPanelRows;
      const float* y = scratch.first[m];
      const float weight = job.weight_of[first + m];
      for (int i = 0; i < lanes; ++i) acc[i] = numerics::fma_f32(weight, y[i], acc[i]);
    }
  });
}

void finish_experts(const ExpertMlpParams& p, const float* acc, std::int64_t acc_stride, int begin, int end) {
  for (int t = begin; t < end; ++t) {
    const float* sum = acc + t * acc_stride;
    const float* residual = line<const float>(p.residual, t);
    float* out = line<float>(p.out, t);
    const int n = p.out.cols;
    if (p.shared.empty()) {
      for (int i = 0; i < n; ++i) out[i] = residual[i] + sum[i];
      continue;
    }
    const float* shared = line<const float>(p.shared.out_scratch, t);
    const float gate = numerics::sigmoid_f32(*line<const float>(p.shared.logits, t));
    for (int i = 0; i < n; ++i) out[i] = residual[i] + numerics::fma_f32(gate, shared[i], sum[i]);
  }
}
