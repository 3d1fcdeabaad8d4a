#pragma once

// The quantised linear contract on panels: exact integer dot products per group, then two fma per group.

#include "kernels/cpu/isa/bytes.h"
#include "kernels/cpu/isa/common.h"

constexpr int kUnpackedBits = 16;  // a panel block expanded to int16 pairs
constexpr int kBlockCodes = 512;   // codes of a block that stays in the first-level cache across tiles

/// Pair kPair (codes 2j, 2j + 1 of each of the 16 rows) of a unit.
template <int kBits, int kPair>
MERERUN_VEC I16 code_pair(const std::byte* unit) {
  if constexpr (kBits == 16) {
    return load_i(unit + 64 * kPair);
  } else if constexpr (kBits == 8) {
    return and_i(shift_right<8 * (kPair % 2)>(load_i(unit + 64 * (kPair / 2))), splat_i(0x00ff00ff));
  } else if constexpr (kBits == 4) {
    return and_i(shift_right<4 * (kPair % 4)>(load_i(unit + 64 * (kPair / 4))), splat_i(0x000f000f));
  } else if constexpr (kBits == 2) {
    return and_i(shift_right<2 * (kPair % 8)>(load_i(unit + 64 * (kPair / 8))), splat_i(0x00030003));
  } else if constexpr (kBits == 3 || kBits == 5) {
    constexpr int kFields = 16 / kBits;
    if constexpr (kPair < 15) {
      const I16 word = load_i(unit + 64 * (kPair / kFields));
      return and_i(shift_right<kBits*(kPair % kFields)>(word), splat_i(((1 << kBits) - 1) * 0x00010001));
    } else {
      I16 code = zero_i();  // bits are masked before they are shifted: one mask takes one register
      unrolled<kBits>([&](auto v) __attribute__((always_inline)) {
        constexpr int kBit = decltype(v)::value;
        const I16 spare = and_i(load_i(unit + 64 * kBit), splat_i(static_cast<std::int32_t>(0x80008000u)));
        code = or_i(code, shift_right<15 - kBit>(spare));
      });
      return code;
    }
  } else {
    static_assert(kBits == 6);
    const I16 high = load_i(unit + 256 + 64 * (kPair / 8));
    const I16 mask = splat_i(0x00300030);
    constexpr int kShift = 2 * (kPair % 8) - 4;
    if constexpr (kShift < 0) {
      return or_i(code_pair<4, kPair>(unit), and_i(shift_left<-kShift>(high), mask));
    } else {
      return or_i(code_pair<4, kPair>(unit), and_i(shift_right<kShift>(high), mask));
    }
  }
}

/// The pair as code_pair gives it; an odd one times 2^odd_pair_shift(kBits): masking a 4-bit code where it
/// lies saves half the shifts. The sums of 16-fold codes stay below 240 * 32512 * 64.
template <int kBits, int kPair>
MERERUN_VEC I16 scaled_pair(const std::byte* unit) {
  if constexpr (kBits == 4) {
    const I16 word = shift_right<8 * (kPair % 4 / 2)>(load_i(unit + 64 * (kPair / 4)));
    return and_i(word, splat_i(kPair % 2 == 0 ? 0x000f000f : 0x00f000f0));
  } else {
    return code_pair<kBits, kPair>(unit);
  }
}
constexpr std::size_t kUnpackedUnit = static_cast<std::size_t>(kUnpackedBits) * 64;
constexpr int odd_pair_shift(int bits) { return bits == 4 ? 4 : 0; }

/// Consecutive groups of one panel against kRows activation rows.
struct GroupsArgs {
  const std::byte* codes;  // first group's first unit
  std::size_t code_stride;
  const std::byte* sides;  // first group's scales, then biases
  std::size_t side_stride;
  DType dtype;
  int groups;
  int units;              // of a group
  const std::int16_t* x;  // first row's codes of the first group
  std::int64_t x_row, x_group;
  const float* scales;  // first row's d, D of the first group
  std::int64_t scales_group;
  std::int32_t (*dots)[kPanelRows];  // [groups * kRows], scratch
  std::byte* unpacked;               // where the codes are left, expanded, for the rows that follow
  int first_group, slices, all_groups;
  float (*acc)[kMaxPassRows][kPanelRows];  // of each slice, [kRows][16] of which are updated
};

/// Hides where a pointer came from, so that the compiler keeps it in a register and addresses from it,
/// instead of computing every address of an unrolled loop ahead and spilling them.
template <typename T>
MERERUN_VEC T* opaque(T* p) {
  asm("" : "+r"(p));
  return p;
}

/// The integer dot products of each group and row.
template <int kBits, int kRows, bool kUnpack>
[[gnu::noinline]] void dot_groups(const GroupsArgs& a) {
  // Panels lie one after the other, so what lies ahead is read next. Many rows leave memory time enough.
  constexpr bool kWaitsForMemory = kRows <= 2 && kBits != kUnpackedBits;
  // One row alone would wait for its own integer adds: spread them over several sums.
  constexpr int kSums = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const std::byte* codes = a.codes;
  const std::int16_t* x = a.x;
  std::int32_t(*dots)[kPanelRows] = a.dots;
  std::byte* unpacked = a.unpacked;
  for (int g = 0; g < a.groups; ++g) {
    I16 sum[kRows][kSums];
    for (int m = 0; m < kRows; ++m) {
      for (int i = 0; i < kSums; ++i) sum[m][i] = zero_i();
    }
    const std::byte* unit = codes;
    const std::int16_t* row[kRows];
    for (int m = 0; m < kRows; ++m) row[m] = opaque(x + m * a.x_row);
    for (int u = 0; u < a.units; ++u) {
      if constexpr (kWaitsForMemory) {
        for (int i = 0; i < kBits; ++i) fetch_ahead(unit + 64 * i);
      } else if constexpr (kBits != kUnpackedBits) {
        for (int i = 0; i < kBits; ++i) __builtin_prefetch(unit + 2048 + 64 * i);
      }
      unrolled<kUnitCodes / 2>([&](auto j) __attribute__((always_inline)) {
        constexpr int kPair = decltype(j)::value;
        const I16 w = kSums == 1 ? code_pair<kBits, kPair>(unit) : scaled_pair<kBits, kPair>(unit);
        if constexpr (kUnpack) store_i(unpacked + 64 * kPair, w);
        for (int m = 0; m < kRows; ++m) {
          sum[m][kPair % kSums] = dot_pairs(sum[m][kPair % kSums], w, row[m] + 2 * kPair);
        }
      });
      unit += static_cast<std::size_t>(kBits) * 64;
      if constexpr (kUnpack) unpacked += kUnpackedUnit;
      for (int m = 0; m < kRows; ++m) row[m] = opaque(row[m] + kUnitCodes);
    }
    if constexpr (kWaitsForMemory) fetch_ahead(unit);  // the group's sides
    for (int m = 0; m < kRows; ++m) {
      I16 total = sum[m][0];
      if constexpr (kSums > 1) {
        I16 odd = sum[m][1];
        if constexpr (kSums == 4) {
          total = add_i(total, sum[m][2]);
          odd = add_i(odd, sum[m][3]);
        }
        total = add_i(total, shift_right_signed<odd_pair_shift(kBits)>(odd));
      }
      store_i(dots[m], total);
    }
    dots += kRows;
    codes += a.code_stride;
    x += a.x_group;
  }
}

/// acc = fma(s d, dot, acc), then fma(b, D, acc), for each group; acc is that of the group's slice, from 0.
template <int kRows>
[[gnu::noinline]] void fold_groups(const GroupsArgs& a) {
  const int side = side_bytes(a.dtype) * kPanelRows;
  const std::byte* sides = a.sides;
  const float* scales = a.scales;
  const std::int32_t(*dots)[kPanelRows] = a.dots;
  const int last = a.first_group + a.groups;
  int slice = 0, begin = 0;
  for (int g = a.first_group; g < last; begin = begin_of(++slice, a.slices, a.all_groups)) {
    const int end = smaller(begin_of(slice + 1, a.slices, a.all_groups), last);
    if (end <= g) continue;
    F16 acc[kRows];
    for (int m = 0; m < kRows; ++m) acc[m] = g == begin ? splat<F16>(0.0f) : load<F16>(a.acc[slice][m]);
    for (; g < end; ++g) {
      const F16 s = load_side(a.dtype, sides);
      const F16 b = load_side(a.dtype, sides + side);
      for (int m = 0; m < kRows; ++m) {
        acc[m] = fma(mul(s, splat<F16>(scales[2 * m])), to_float(load_i(dots[m])), acc[m]);
        acc[m] = fma(b, splat<F16>(scales[2 * m + 1]), acc[m]);
      }
      dots += kRows;
      sides += a.side_stride;
      scales += a.scales_group;
    }
    for (int m = 0; m < kRows; ++m) store(a.acc[slice][m], acc[m]);
  }
}

/// In two loops: the float chain of one group would otherwise hold up the integers of the next.
template <int kBits, int kRows, bool kUnpack = false>
MERERUN_VEC void multiply_groups(const GroupsArgs& a) {
  dot_groups<kBits, kRows, kUnpack>(a);
  fold_groups<kRows>(a);
}

/// Rows of the next step, of those left in a tile: what fits the registers.
MERERUN_VEC int step_rows(int left) {
  if (kMaxTileRows == 8 && (left == 8 || left == 6)) return left;
  return smaller(left, 4);
}

template <int kBits>
void multiply_step(const GroupsArgs& a, int rows) {
  if constexpr (kMaxTileRows == 8) {
    if (rows == 8) return a.unpacked ? multiply_groups<kBits, 8, true>(a) : multiply_groups<kBits, 8>(a);
    if (rows == 6) return multiply_groups<kBits, 6>(a);
  }
  if (rows == 4) return a.unpacked ? multiply_groups<kBits, 4, true>(a) : multiply_groups<kBits, 4>(a);
  if (rows == 3) return multiply_groups<kBits, 3>(a);
  if (rows == 2) return multiply_groups<kBits, 2>(a);
  multiply_groups<kBits, 1>(a);
}

void multiply_step(int bits, const GroupsArgs& a, int rows) {
  switch (bits) {
    case 2: return multiply_step<2>(a, rows);
    case 3: return multiply_step<3>(a, rows);
    case 4: return multiply_step<4>(a, rows);
    case 5: return multiply_step<5>(a, rows);
    case 6: return multiply_step<6>(a, rows);
    case 8: return multiply_step<8>(a, rows);
    default: return multiply_step<kUnpackedBits>(a, rows);
  }
}

/// Groups [g, g + count) of one panel against activation rows first + i, i < rows, added to acc[slice][i].
/// The first rows unpack the codes for those that follow.
void multiply_block(const PackedView& w, const std::byte* panel, const RowsView& in, int g, int count,
                    int first, int rows, LinearScratch& scratch, float (*acc)[kMaxPassRows][kPanelRows]) {
  const int units = w.group / kUnitCodes;
  GroupsArgs a{};
  a.codes = panel + static_cast<std::size_t>(g) * w.record_bytes;
  a.code_stride = w.record_bytes;
  a.sides = a.codes + static_cast<std::size_t>(units) * static_cast<std::size_t>(w.bits) * 64;
  a.side_stride = w.record_bytes;
  a.dtype = w.dtype;
  a.groups = count;
  a.units = units;
  a.x_row = w.group;
  a.dots = scratch.dots;
  a.first_group = g;
  a.slices = numerics::slice_count(w.in);
  a.all_groups = w.groups;
  int bits = w.bits;
  for (int m = 0; m < rows;) {
    const int row_in_tile = m % kTileRows;
    const int tile_first = first + m - row_in_tile;
    const int tile_rows = smaller(kTileRows, in.rows - tile_first);
    const int step = step_rows(tile_rows - row_in_tile);
    a.x_group = static_cast<std::int64_t>(tile_rows) * w.group;
    a.x = in.codes + static_cast<std::int64_t>(tile_first) * in.in + g * a.x_group + row_in_tile * a.x_row;
    a.scales_group = 2 * tile_rows;
    a.scales = in.scales + static_cast<std::int64_t>(tile_first) * 2 * w.groups + g * a.scales_group +
               2 * row_in_tile;
    a.acc = reinterpret_cast<float(*)[kMaxPassRows][kPanelRows]>(acc[0][m]);
    a.unpacked = m == 0 && rows > kTileRows ? scratch.unpacked : nullptr;
    multiply_step(bits, a, step);
    if (a.unpacked != nullptr) {
      a.codes = a.unpacked;
      a.code_stride = static_cast<std::size_t>(units) * kUnpackedUnit;
      bits = kUnpackedBits;
    }
    m += step;
  }
}

/// As affine_product, by pairs of codes of any width.
void pair_product(const PackedView& w, const std::byte* records, const RowsView& in, int first, int rows,
                  LinearScratch& scratch, float (*y)[kPanelRows]) {
  const int slices = numerics::slice_count(w.in);
  float(*acc)[kMaxPassRows][kPanelRows] =
      slices == 1 ? reinterpret_cast<float(*)[kMaxPassRows][kPanelRows]>(y) : scratch.slices;
  const int blocks = (w.in + kBlockCodes - 1) / kBlockCodes;
  for (int i = 0; i < blocks; ++i) {  // of about the same size
    const int g = w.groups * i / blocks;
    multiply_block(w, records, in, g, w.groups * (i + 1) / blocks - g, first, rows, scratch, acc);
  }
  if (slices == 1) return;
  for (int m = 0; m < rows; ++m) {
    store(y[m], join_slices([&](int j) { return load<F16>(scratch.slices[j][m]); }));
  }
}

/// y[i] = the 16 outputs of one panel for activation rows first + i, i < rows <= 64; first is a multiple
/// of 8. `planes` are those of lone_row_planes.
void affine_product(const PackedView& w, int expert, int panel, const RowsView& in, const std::byte* planes,
                    int first, int rows, LinearScratch& scratch, float (*y)[kPanelRows]) {
  const std::byte* records = w.panel(expert, panel);
  const bool lone = planes != nullptr && first + rows == in.rows;
  const int pairs = lone ? rows - 1 : rows;
  if (pairs > 0) pair_product(w, records, in, first, pairs, scratch, y);
  if (!lone) return;
  const float* scales = in.scales + static_cast<std::int64_t>(first + pairs) * 2 * w.groups;
  if constexpr (kHasByteDots) byte_product(w, records, planes, scales, y[pairs]);
}

void quantise_row(const float* x, int in, int group, std::int16_t* codes, std::int64_t code_stride,
                  float* scales, std::int64_t scale_stride) {
  for (int g = 0; g * group < in; ++g) {
    const numerics::GroupScale s = numerics::quantise_group(x + g * group, group, codes + g * code_stride);
    scales[g * scale_stride] = s.d;
    scales[g * scale_stride + 1] = s.sum;
  }
}
