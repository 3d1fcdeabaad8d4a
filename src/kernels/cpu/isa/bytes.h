#pragma once

// One row against 4-bit codes, by bytes: its int16 activations as two planes of int8, X = 256 high + low, and
// four codes a 32-bit lane where the other kernels have two. A mask then unpacks twice as many codes, and
// unpacking is what a lone row waits for. Every sum is an exact integer, so the group dots are those of the
// other kernels.

#include "kernels/cpu/isa/common.h"

#if defined(__AVX2__) && !defined(__AVX512VNNI__)
/// Without an instruction that adds up four products in 32 bits. Pairs of products are added up as int16: a
/// lane takes eight of at most 2 * 15 * 128.
struct ByteSums : BytePlanes {
  I16 sum = zero_i();

  /// A unit's codes times their planes.
  MERERUN_VEC void take(const std::byte* unit, const std::byte* planes) {
    I16 low = zero_i(), high = zero_i();
    for (int i = 0; i < kUnitCodes / 8; ++i, unit += 64, planes += 16) {
      const I16 word = load_i(unit);
      const I16 lower = and_i(word, splat_i(0x0f0f0f0f));
      low = dot_bytes(low, lower, planes);
      high = dot_bytes(high, lower, planes + 4);
      const I16 upper = and_i(shift_right<4>(word), splat_i(0x0f0f0f0f));
      low = dot_bytes(low, upper, planes + 8);
      high = dot_bytes(high, upper, planes + 12);
    }
    sum = add_i(sum, add_i(join_pairs(low, 1), join_pairs(high, 256)));
  }
  MERERUN_VEC I16 total() const { return sum; }
};
#endif

/// The planes, in the scratch, of the last row of `in` where that row is alone in its tile and multiplied by
/// bytes; else null.
template <typename Sums = ByteSums>
MERERUN_VEC const std::byte* lone_row_planes(const PackedView& w, const RowsView& in,
                                             LinearScratch& scratch) {
  if constexpr (kHasByteDots) {
    const bool alone = in.rows % kTileRows == 1 && in.in <= kPlaneCodes;
    if (!alone || w.format != WeightFormat::kAffine || w.bits != 4) return nullptr;
    const std::int16_t* codes = in.codes + static_cast<std::int64_t>(in.rows - 1) * in.in;
    for (int i = 0; i < in.in; i += 8) Sums::split_codes(codes + i, scratch.planes + 2 * i);
    return scratch.planes;
  }
  return nullptr;
}

/// Codes of 16 outputs and one group, from `unit` on, times a row's planes.
template <typename Sums = ByteSums>
MERERUN_VEC I16 byte_dots(const std::byte* unit, int units, const std::byte* planes) {
  Sums sums;
  const auto take = [&](int u) __attribute__((always_inline)) {
    const std::byte* codes = unit + u * 4 * 64;
    for (int i = 0; i < 4; ++i) fetch_ahead(codes + 64 * i);
    sums.take(codes, planes + u * 2 * kUnitCodes);
  };
  if (units == 2) {  // groups of 64 without a loop, whose end would be guessed wrong
    take(0);
    take(1);
  } else {
    for (int u = 0; u < units; ++u) take(u);
  }
  fetch_ahead(unit + units * 4 * 64);  // scales and biases
  return sums.total();
}

/// y = the 16 outputs of one panel for the row whose planes these are; `scales` are those of its groups.
template <typename Sums = ByteSums>
void byte_product(const PackedView& w, const std::byte* record, const std::byte* planes, const float* scales,
                  float* y) {
  const int slices = numerics::slice_count(w.in);
  const int units = w.group / kUnitCodes;
  const std::size_t code_bytes = static_cast<std::size_t>(units) * 4 * 64;
  const std::size_t side = static_cast<std::size_t>(side_bytes(w.dtype)) * kPanelRows;
  F16 part[numerics::kLinearSlices];
  for (int slice = 0, g = 0; slice < slices; ++slice) {
    F16 acc = splat<F16>(0.0f);
    for (const int end = begin_of(slice + 1, slices, w.groups); g < end; ++g) {
      const F16 dot = to_float(byte_dots<Sums>(record, units, planes));
      acc = fma(mul(load_side(w.dtype, record + code_bytes), splat<F16>(scales[0])), dot, acc);
      acc = fma(load_side(w.dtype, record + code_bytes + side), splat<F16>(scales[1]), acc);
      record += w.record_bytes;
      planes += 2 * w.group;
      scales += 2;
    }
    part[slice] = acc;
  }
  store(y, slices == 1 ? part[0] : join_slices([&](int j) { return part[j]; }));
}
