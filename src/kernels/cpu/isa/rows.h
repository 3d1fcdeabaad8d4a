#pragma once

// Row-wise operations. The loops are the reference's; their arithmetic vectorises to the same bits.

#include "kernels/cpu/isa/common.h"

void embed_row(const StoredRow& row, float* out) {
  const int element = side_bytes(row.dtype);
  if (row.format == WeightFormat::kDense) {
    int i = 0;
    for (; i + 16 <= row.in; i += 16) store(out + i, load_side(row.dtype, row.weight + i * element));
    if (i < row.in) {
      std::byte tail[64] = {};
      float wide[16];
      __builtin_memcpy(tail, row.weight + i * element, static_cast<std::size_t>((row.in - i) * element));
      store(wide, load_side(row.dtype, tail));
      for (int j = i; j < row.in; ++j) out[j] = wide[j - i];
    }
    return;
  }
  const std::uint64_t mask = (1u << row.bits) - 1u;
  for (int g = 0; g * row.group < row.in; ++g) {
    std::byte sides[2][64] = {};
    float wide[2][16];
    __builtin_memcpy(sides[0], row.scales + g * element, static_cast<std::size_t>(element));
    __builtin_memcpy(sides[1], row.biases + g * element, static_cast<std::size_t>(element));
    for (int i = 0; i < 2; ++i) store(wide[i], load_side(row.dtype, sides[i]));
    const std::byte* stream = row.weight + static_cast<std::int64_t>(g) * row.group * row.bits / 8;
    for (int i = 0; i < row.group; i += 8, stream += row.bits) {  // eight codes fill `bits` bytes
      std::uint64_t window = 0;
      __builtin_memcpy(&window, stream, static_cast<std::size_t>(row.bits));
      float* to = out + g * row.group + i;
      for (int j = 0; j < 8; ++j) {
        const float q = static_cast<float>(static_cast<std::int32_t>((window >> (row.bits * j)) & mask));
        to[j] = numerics::fma_f32(wide[0][0], q, wide[1][0]);
      }
    }
  }
}

MERERUN_VEC float inverse_rms(const float* x, int n, float eps) {
  return numerics::rsqrt_f32(numerics::sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

/// RMS norm of n values, as in RmsNormParams. `out` may be `x`.
MERERUN_VEC void norm_run(const float* x, const float* weight, int n, float eps, float* out) {
  const float r = inverse_rms(x, n, eps);
  for (int i = 0; i < n; ++i) out[i] = (x[i] * r) * weight[i];
}

void rms_norm(const RmsNormParams& p, int begin, int end) {
  const float* w = line<const float>(p.weight, 0);
  for (int t = begin; t < end; ++t)
    norm_run(line<const float>(p.x, t), w, p.x.cols, p.eps, line<float>(p.out, t));
}

void gated_rms_norm(const GatedRmsNormParams& p, int begin, int end) {
  const int dim = p.weight.cols;
  const float* w = line<const float>(p.weight, 0);
  for (int item = begin; item < end; ++item) {
    const int t = item / p.heads;
    const std::int64_t first = static_cast<std::int64_t>(item % p.heads) * dim;
    const float* x = line<const float>(p.x, t) + first;
    const float* z = line<const float>(p.z, t) + first;
    float* out = line<float>(p.out, t) + first;
    const float r = inverse_rms(x, dim, p.eps);
    if (p.activation == GateActivation::kSilu) {
      for (int i = 0; i < dim; ++i) out[i] = ((x[i] * r) * w[i]) * numerics::silu_f32(z[i]);
    } else {
      for (int i = 0; i < dim; ++i) out[i] = ((x[i] * r) * w[i]) * numerics::sigmoid_f32(z[i]);
    }
  }
}

void swiglu(const SwigluParams& p, int t, int first, int last) {
  const float* gate = line<const float>(p.gate, t);
  const float* up = line<const float>(p.up, t);
  float* out = line<float>(p.out, t);
  for (int i = first; i < last; ++i) out[i] = numerics::silu_f32(gate[i]) * up[i];
}

void add_rows(const AddRowsParams& p, int begin, int end) {
  for (int t = begin; t < end; ++t) {
    const float* a = line<const float>(p.a, t);
    const float* b = line<const float>(p.b, t);
    float* out = line<float>(p.out, t);
    for (int i = 0; i < p.out.cols; ++i) out[i] = a[i] + b[i];
  }
}

std::int32_t argmax(const float* x, int n) {
  float most[kPanelRows];
  std::int32_t nan[kPanelRows] = {};
  for (int j = 0; j < kPanelRows; ++j) most[j] = -__builtin_inff();
  int i = 0;
  for (; i + kPanelRows <= n; i += kPanelRows) {
    for (int j = 0; j < kPanelRows; ++j) {
      most[j] = numerics::max_f32(most[j], x[i + j]);
      nan[j] |= x[i + j] != x[i + j];
    }
  }
  for (; i < n; ++i) {
    most[0] = numerics::max_f32(most[0], x[i]);
    nan[0] |= x[i] != x[i];
  }
  for (int j = 1; j < kPanelRows; ++j) {
    most[0] = numerics::max_f32(most[0], most[j]);
    nan[0] |= nan[j];
  }
  if (nan[0] != 0) return -1;
  i = 0;
  while (x[i] != most[0]) ++i;
  return i;
}

/// True if logit a of expert i ranks before logit b of expert j: value descending, id ascending, NaN last.
MERERUN_VEC bool ranks_before(float a, int i, float b, int j) {
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if (a_nan != b_nan) return b_nan;
  if (!a_nan && a != b) return a > b;
  return i < j;
}

/// Writes the k experts that rank first, in ascending id; `ranked` holds k ids.
void choose_experts(const float* logits, int experts, int k, std::int32_t* ranked, std::int32_t* ids) {
  int count = 0;
  for (int e = 0; e < experts; ++e) {
    if (count == k && !ranks_before(logits[e], e, logits[ranked[k - 1]], ranked[k - 1])) continue;
    int slot = count < k ? count++ : k - 1;
    while (slot > 0 && ranks_before(logits[e], e, logits[ranked[slot - 1]], ranked[slot - 1])) {
      ranked[slot] = ranked[slot - 1];
      --slot;
    }
    ranked[slot] = e;
  }
  for (int i = 0; i < k; ++i) {
    int slot = i;
    while (slot > 0 && ids[slot - 1] > ranked[i]) {
      ids[slot] = ids[slot - 1];
      --slot;
    }
    ids[slot] = ranked[i];
  }
}

MERERUN_VEC float largest(const float* x, int n) {
  float most = -__builtin_inff();
  for (int i = 0; i < n; ++i) most = numerics::max_f32(most, x[i]);
  return most;
}

void route_experts(const RouteExpertsParams& p, int begin, int end, WorkerScratch scratch) {
  const int experts = p.logits.cols;
  const int k = p.ids.cols;
  auto* terms = reinterpret_cast<float*>(scratch.data);
  for (int t = begin; t < end; ++t) {
    const float* logits = line<const float>(p.logits, t);
    std::int32_t* ids = line<std::int32_t>(p.ids, t);
    float* weights = line<float>(p.weights, t);
    if (p.forced_ids.empty()) {
      choose_experts(logits, experts, k, reinterpret_cast<std::int32_t*>(scratch.data), ids);
    } else {
      for (int i = 0; i < k; ++i) ids[i] = line<const std::int32_t>(p.forced_ids, t)[i];
    }
    float denominator = 0;
    if (p.normalise) {
      for (int i = 0; i < k; ++i) weights[i] = logits[ids[i]];
      const float most = largest(weights, k);
      for (int i = 0; i < k; ++i) {
        weights[i] = numerics::exp_f32(weights[i] - most);
        denominator = denominator + weights[i];
      }
    } else {
      const float most = largest(logits, experts);
      for (int e = 0; e < experts; ++e) terms[e] = numerics::exp_f32(logits[e] - most);
      denominator = numerics::sum_of_values(terms, experts);
      for (int i = 0; i < k; ++i) weights[i] = terms[ids[i]];
    }
    for (int i = 0; i < k; ++i) weights[i] = weights[i] / denominator;
  }
}
