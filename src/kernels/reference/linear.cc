#include "kernels/linear.h"

#include <cstring>

#include "kernels/numerics.h"
#include "kernels/reference/loops.h"

namespace mererun::reference::MERERUN_REFERENCE_BUILD {
namespace {

namespace nm = numerics;

/// n elements from element `first` on of an array of BF16, F16 or F32, widened exactly.
void widen_row(const void* base, std::int64_t first, int n, DType dtype, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(base) + first * (dtype == DType::kF32 ? 4 : 2);
  if (dtype == DType::kF32) {
    std::memcpy(to, bytes, static_cast<std::size_t>(n) * 4);
    return;
  }
  for (int i = 0; i < n; ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes + 2 * i, 2);
    to[i] = dtype == DType::kBF16 ? nm::from_bits(static_cast<std::uint32_t>(half) << 16) : f16_to_f32(half);
  }
}

std::int64_t stored_row(const LinearSource& s, int expert, int row) {
  return expert * s.rows_between_experts() + row;
}

/// Code i of a row's bit stream: bits [bits * i, bits * (i + 1)), lowest first.
int code_at(const LinearSource& s, std::int64_t row, int i) {
  const auto* stream = static_cast<const unsigned char*>(s.weight) + row * s.weight_row_bytes();
  int code = 0;
  for (int b = 0; b < s.bits; ++b) {
    const std::int64_t bit = static_cast<std::int64_t>(s.bits) * i + b;
    code |= ((stream[bit >> 3] >> (bit & 7)) & 1) << b;
  }
  return code;
}

void embed_rows(const EmbedRowsParams& p, const WeightData& weight) {
  const LinearSource& s = *weight.source;
  const std::int32_t* ids = p.ids.row<std::int32_t>(0);
  for (int t = 0; t < p.out.rows; ++t) {
    float* out = p.out.row<float>(t);
    const std::int64_t row = ids[t];
    if (s.format == WeightFormat::kDense) {
      widen_row(s.weight, row * s.in, s.in, s.dtype, out);
      continue;
    }
    const std::int64_t groups = s.in / s.group;
    for (int i = 0; i < s.in; ++i) {
      float scale, bias;
      widen_row(s.scales, row * groups + i / s.group, 1, s.dtype, &scale);
      widen_row(s.biases, row * groups + i / s.group, 1, s.dtype, &bias);
      out[i] = nm::fma_f32(scale, static_cast<float>(code_at(s, row, i)), bias);
    }
  }
}

void store(TensorView out, TensorView residual, int t, int n, float y) {
  out.row<float>(t)[n] = residual.empty() ? y : residual.row<float>(t)[n] + y;
}

/// Dot product of one weight row (codes, scales, biases) with one quantised activation row.
float affine_dot(const LinearSource& s, const std::uint8_t* codes, const float* scales, const float* biases,
                 const std::int16_t* x, const float* d, const float* sum) {
  const int groups = s.in / s.group;
  const int slices = nm::slice_count(s.in);
  float acc[nm::kLinearSlices] = {};
  for (int j = 0; j < slices; ++j) {
    const int end = nm::slice_begin(j + 1, slices, groups);
    for (int g = nm::slice_begin(j, slices, groups); g < end; ++g) {
      std::int32_t dot = 0;  // exact: 128 * 255 * 32512 < 2^31
      for (int i = g * s.group; i < (g + 1) * s.group; ++i) dot += static_cast<std::int32_t>(codes[i]) * x[i];
      acc[j] = nm::fma_f32(scales[g] * d[g], static_cast<float>(dot), acc[j]);
      acc[j] = nm::fma_f32(biases[g], sum[g], acc[j]);
    }
  }
  return slices == 1 ? acc[0] : nm::join8(acc);
}

void affine_linear(const WeightData& weight, int expert, TensorView x, TensorView out, TensorView residual,
                   const Scratch& scratch) {
  const LinearSource& s = *weight.source;
  const int groups = s.in / s.group;
  for (int t = 0; t < x.rows; ++t) {
    for (int g = 0; g < groups; ++g) {
      const nm::GroupScale scale =
          nm::quantise_group(x.row<float>(t) + g * s.group, s.group,
                             scratch.codes + static_cast<std::int64_t>(t) * s.in + g * s.group);
      scratch.group_d[static_cast<std::int64_t>(t) * groups + g] = scale.d;
      scratch.group_sum[static_cast<std::int64_t>(t) * groups + g] = scale.sum;
    }
  }
  float* scales = scratch.values;
  float* biases = scratch.values + groups;
  for (int n = 0; n < s.out; ++n) {
    const std::int64_t row = stored_row(s, expert, n);
    widen_row(s.scales, row * groups, groups, s.dtype, scales);
    widen_row(s.biases, row * groups, groups, s.dtype, biases);
    const std::uint8_t* codes = weight.codes + (static_cast<std::int64_t>(expert) * s.out + n) * s.in;
    for (int t = 0; t < x.rows; ++t) {
      const std::int64_t first_group = static_cast<std::int64_t>(t) * groups;
      const float y =
          affine_dot(s, codes, scales, biases, scratch.codes + static_cast<std::int64_t>(t) * s.in,
                     scratch.group_d + first_group, scratch.group_sum + first_group);
      store(out, residual, t, n, y);
    }
  }
}

/// Lane j of 32 takes elements 64i + 2j and 64i + 2j + 1, ascending; lanes join by halving.
float dense_dot(const float* w, const float* x, int n) {
  constexpr int kStep = 2 * nm::kDenseLanes;
  float acc[nm::kDenseLanes] = {};
  int base = 0;
  for (; base + kStep <= n; base += kStep) {
    for (int j = 0; j < nm::kDenseLanes; ++j) {
      const int i = base + 2 * j;
      acc[j] = nm::fma_f32(w[i + 1], x[i + 1], nm::fma_f32(w[i], x[i], acc[j]));
    }
  }
  for (int i = base; i < n; ++i) {
    const int j = (i - base) / 2;
    acc[j] = nm::fma_f32(w[i], x[i], acc[j]);
  }
  return nm::join_halving(acc, nm::kDenseLanes);
}

void dense_linear(const LinearSource& s, int expert, TensorView x, TensorView out, TensorView residual,
                  const Scratch& scratch) {
  float* w = scratch.values;
  for (int n = 0; n < s.out; ++n) {
    const std::int64_t row = stored_row(s, expert, n);
    widen_row(s.weight, row * s.in, s.in, s.dtype, w);
    for (int t = 0; t < x.rows; ++t) store(out, residual, t, n, dense_dot(w, x.row<float>(t), s.in));
  }
}

void linear(const WeightData& weight, int expert, TensorView x, TensorView out, TensorView residual,
            const Scratch& scratch) {
  if (weight.source->format == WeightFormat::kAffine) {
    affine_linear(weight, expert, x, out, residual, scratch);
  } else {
    dense_linear(*weight.source, expert, x, out, residual, scratch);
  }
}

}  // namespace

void bind_linear(Loops& loops) {
  loops.embed_rows = embed_rows;
  loops.linear = linear;
}

}  // namespace mererun::reference::MERERUN_REFERENCE_BUILD
