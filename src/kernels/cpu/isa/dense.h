#pragma once

// The dense linear contract: 32 lanes along the row, two elements of a 64-element block each, joined by
// halving.

#include "kernels/cpu/isa/common.h"

/// Elements of lanes 0..15 and 16..31, even then odd, of one block of a weight row.
struct DenseBlock {
  F16 even[2], odd[2];
};

/// A block of a mapped row: 64 bf16, two a 32-bit lane.
MERERUN_VEC DenseBlock load_mapped(const std::byte* p) {
  DenseBlock d;
  for (int i = 0; i < 2; ++i) {
    const I16 pairs = load_i(p + 64 * i);
    d.even[i] = as_float(shift_left<16>(pairs));
    d.odd[i] = as_float(and_i(pairs, splat_i(static_cast<std::int32_t>(0xffff0000u))));
  }
  return d;
}

MERERUN_VEC DenseBlock load_dense(const PackedView& w, const std::byte* row, int block) {
  if (!w.planar) return load_mapped(row + static_cast<std::size_t>(block) * kDenseBlock * 2);
  DenseBlock d;
  const int half = 16 * side_bytes(w.dtype);
  const std::byte* p = row + static_cast<std::int64_t>(block) * 4 * half;
  for (int i = 0; i < 2; ++i) {
    d.even[i] = load_side(w.dtype, p + i * half);
    d.odd[i] = load_side(w.dtype, p + (i + 2) * half);
  }
  return d;
}

template <int kOut, int kRows>
MERERUN_VEC void dense_block(const DenseBlock (&d)[kOut], const float* const (&x)[kRows], int block,
                             F16 (&acc)[kOut][kRows][2]) {
  for (int m = 0; m < kRows; ++m) {
    const float* p = x[m] + static_cast<std::int64_t>(block) * kDenseBlock;
    for (int i = 0; i < 2; ++i) {
      const F16 xe = load<F16>(p + 16 * i);
      const F16 xo = load<F16>(p + 32 + 16 * i);
      for (int r = 0; r < kOut; ++r) {
        acc[r][m][i] = fma(d[r].even[i], xe, acc[r][m][i]);
        acc[r][m][i] = fma(d[r].odd[i], xo, acc[r][m][i]);
      }
    }
  }
}

/// kOut weight rows from `row` on against kRows activation rows; y[m][r].
template <int kOut, int kRows>
void dense_tile(const PackedView& w, const std::byte* row, const float* const (&x)[kRows],
                float (*y)[kPanelRows], int column) {
  F16 acc[kOut][kRows][2];
  for (int r = 0; r < kOut; ++r) {
    for (int m = 0; m < kRows; ++m) acc[r][m][0] = acc[r][m][1] = splat<F16>(0.0f);
  }
  const int whole = w.planar ? planar_length(w.in) / kDenseBlock : w.in / kDenseBlock;
  DenseBlock d[kOut];
  for (int b = 0; b < whole; ++b) {
    for (int r = 0; r < kOut; ++r) d[r] = load_dense(w, row + static_cast<std::size_t>(r) * w.row_bytes, b);
    dense_block(d, x, b, acc);
  }
  if (whole * kDenseBlock < w.in) {  // a tail of the mapped row: zeros follow, not the next row
    for (int r = 0; r < kOut; ++r) {
      alignas(64) std::byte tail[kDenseBlock * 2] = {};
      const std::size_t done = static_cast<std::size_t>(whole) * kDenseBlock * 2;
      __builtin_memcpy(tail, row + static_cast<std::size_t>(r) * w.row_bytes + done, w.row_bytes - done);
      d[r] = load_mapped(tail);
    }
    dense_block(d, x, whole, acc);
  }
  for (int r = 0; r < kOut; ++r) {
    for (int m = 0; m < kRows; ++m) y[m][column + r] = join_lanes(add(acc[r][m][0], acc[r][m][1]));
  }
}

constexpr int kDenseOut = kMaxTileRows == 8 ? 4 : 2;  // weight rows that fill the registers with accumulators

template <int kRows>
void dense_rows(const PackedView& w, int expert, int panel, const float* const (&x)[kRows],
                float (*y)[kPanelRows]) {
  const int rows = w.panel_rows(panel);
  int r = 0;
  for (; r + kDenseOut <= rows; r += kDenseOut) {
    dense_tile<kDenseOut, kRows>(w, w.row(expert, panel * kPanelRows + r), x, y, r);
  }
  for (; r < rows; ++r) dense_tile<1, kRows>(w, w.row(expert, panel * kPanelRows + r), x, y, r);
}

void dense_product(const PackedView& w, int expert, int panel, const RowsView& in, int first, int rows,
                   float (*y)[kPanelRows]) {
  for (int m = 0; m < rows; ++m) {
    for (int r = 0; r < kPanelRows; ++r) y[m][r] = 0.0f;  // rows past `out`
  }
  int m = 0;
  for (; m + 2 <= rows; m += 2) {
    const float* const x[2] = {in.planar + (first + m) * in.planar_stride,
                               in.planar + (first + m + 1) * in.planar_stride};
    dense_rows<2>(w, expert, panel, x, y + m);
  }
  if (m < rows) {
    const float* const x[1] = {in.planar + (first + m) * in.planar_stride};
    dense_rows<1>(w, expert, panel, x, y + m);
  }
}

void planar_row(const float* x, int in, float* planar) {
  const int whole = in / kDenseBlock * kDenseBlock;
  for (int b = 0; b < whole; b += kDenseBlock) {
    for (int j = 0; j < 32; ++j) {
      planar[b + j] = x[b + 2 * j];
      planar[b + 32 + j] = x[b + 2 * j + 1];
    }
  }
  if (whole == in) return;
  for (int j = 0; j < kDenseBlock; ++j) planar[whole + j] = 0.0f;
  for (int i = whole; i < in; ++i) planar[whole + (i - whole) / 2 + 32 * (i % 2)] = x[i];
}
