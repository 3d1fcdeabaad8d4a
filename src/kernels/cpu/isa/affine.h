#pragma once

// The quantised linear contract on panels: exact integer dot products per group, then two fma per group.

#include "kernels/cpu/isa/common.h"

constexpr int kUnpackedBits = 16;    // a panel block expanded to int16 pairs
constexpr int kBlockCodes = 512;     // codes of a block that stays in the first-level cache across tiles
constexpr int kUnpackFromRows = 17;  // expanding once pays when a block is used this often

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
  float* acc;  // [kRows][16], updated
};

/// Hides where a pointer came from, so that the compiler keeps it in a register and addresses from it,
/// instead of computing every address of an unrolled loop ahead and spilling them.
template <typename T>
MERERUN_VEC T* opaque(T* p) {
  asm("" : "+r"(p));
  return p;
}

template <int kBits, int kRows>
[[gnu::noinline]] void multiply_groups(const GroupsArgs& a) {
  // How far ahead of the codes to fetch: the hardware's own prefetch stops at pages and starts late. Panels
  // lie one after the other, so what lies ahead is read next (past the last panel the hint is ignored).
  constexpr std::size_t kPrefetchBytes = kRows <= 2 ? 4096 : 2048;
  // One row alone would wait for its own integer adds: spread them over several sums.
  constexpr int kSums = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const int side = side_bytes(a.dtype) * kPanelRows;
  const std::byte* codes = a.codes;
  const std::byte* sides = a.sides;
  const std::int16_t* x = a.x;
  const float* scales = a.scales;
  for (int g = 0; g < a.groups; ++g) {
    I16 sum[kRows][kSums];
    for (int m = 0; m < kRows; ++m) {
      for (int i = 0; i < kSums; ++i) sum[m][i] = zero_i();
    }
    const std::byte* unit = codes;
    const std::int16_t* row[kRows];
    for (int m = 0; m < kRows; ++m) row[m] = opaque(x + m * a.x_row);
    for (int u = 0; u < a.units; ++u) {
      if constexpr (kBits != kUnpackedBits) {
        for (int i = 0; i < kBits; ++i) __builtin_prefetch(unit + kPrefetchBytes + 64 * i);
      }
      unrolled<kUnitCodes / 2>([&](auto j) __attribute__((always_inline)) {
        constexpr int kPair = decltype(j)::value;
        const I16 w = kSums == 1 ? code_pair<kBits, kPair>(unit) : scaled_pair<kBits, kPair>(unit);
        for (int m = 0; m < kRows; ++m) {
          sum[m][kPair % kSums] = dot_pairs(sum[m][kPair % kSums], w, row[m] + 2 * kPair);
        }
      });
      unit += static_cast<std::size_t>(kBits) * 64;
      for (int m = 0; m < kRows; ++m) row[m] = opaque(row[m] + kUnitCodes);
    }
    const F16 s = load_side(a.dtype, sides);
    const F16 b = load_side(a.dtype, sides + side);
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
      // The float sums live in memory: registers are for the integer ones.
      float* at = a.acc + m * kPanelRows;
      const F16 acc = fma(mul(s, splat<F16>(scales[2 * m])), to_float(total), load<F16>(at));
      store(at, fma(b, splat<F16>(scales[2 * m + 1]), acc));
    }
    codes += a.code_stride;
    sides += a.side_stride;
    x += a.x_group;
    scales += a.scales_group;
  }
}

/// All rows of a tile, in steps that fit the registers.
template <int kBits>
void multiply_tile(GroupsArgs a, int rows) {
  const auto advance = [&a](int by) {
    a.x += by * a.x_row;
    a.scales += 2 * by;
    a.acc += by * kPanelRows;
  };
  if constexpr (kMaxTileRows == 8) {
    if (rows == 8) return multiply_groups<kBits, 8>(a);
    if (rows == 6) return multiply_groups<kBits, 6>(a);
  }
  while (rows >= 4) {
    multiply_groups<kBits, 4>(a);
    advance(4);
    rows -= 4;
  }
  if (rows == 3) return multiply_groups<kBits, 3>(a);
  if (rows == 2) return multiply_groups<kBits, 2>(a);
  if (rows == 1) return multiply_groups<kBits, 1>(a);
}

void multiply_tile(int bits, const GroupsArgs& a, int rows) {
  switch (bits) {
    case 2: return multiply_tile<2>(a, rows);
    case 3: return multiply_tile<3>(a, rows);
    case 4: return multiply_tile<4>(a, rows);
    case 5: return multiply_tile<5>(a, rows);
    case 6: return multiply_tile<6>(a, rows);
    case 8: return multiply_tile<8>(a, rows);
    default: return multiply_tile<kUnpackedBits>(a, rows);
  }
}

template <int kBits>
void unpack_units(const std::byte* codes, std::size_t stride, int groups, int units, std::byte* out) {
  for (int g = 0; g < groups; ++g) {
    for (int u = 0; u < units; ++u) {
      const std::byte* unit = codes + static_cast<std::size_t>(u * kBits) * 64;
      unrolled<kUnitCodes / 2>([&](auto j) __attribute__((always_inline)) {
        constexpr int kPair = decltype(j)::value;
        store_i(out + 64 * kPair, code_pair<kBits, kPair>(unit));
      });
      out += kUnitCodes / 2 * 64;
    }
    codes += stride;
  }
}

void unpack_units(int bits, const std::byte* codes, std::size_t stride, int groups, int units,
                  std::byte* out) {
  switch (bits) {
    case 2: return unpack_units<2>(codes, stride, groups, units, out);
    case 3: return unpack_units<3>(codes, stride, groups, units, out);
    case 4: return unpack_units<4>(codes, stride, groups, units, out);
    case 5: return unpack_units<5>(codes, stride, groups, units, out);
    case 6: return unpack_units<6>(codes, stride, groups, units, out);
    default: return unpack_units<8>(codes, stride, groups, units, out);
  }
}

/// y[i] = the 16 outputs of one panel for activation rows first + i, i < rows <= 64; first is a multiple
/// of 8.
void affine_product(const PackedView& w, int expert, int panel, const RowsView& in, int first, int rows,
                    LinearScratch& scratch, float (*y)[kPanelRows]) {
  const int slices = numerics::slice_count(w.in);
  const int units = w.group / kUnitCodes;
  const std::byte* records = w.panel(expert, panel);
  const std::size_t unit_bytes = static_cast<std::size_t>(units) * static_cast<std::size_t>(w.bits) * 64;
  const bool unpack = rows >= kUnpackFromRows;
  const int block = rows > kTileRows ? kBlockCodes / w.group : w.groups;
  float(*acc)[kMaxPassRows][kPanelRows] =
      slices == 1 ? reinterpret_cast<float(*)[kMaxPassRows][kPanelRows]>(y) : scratch.slices;
  for (int j = 0; j < slices; ++j) {
    const int end = numerics::slice_begin(j + 1, slices, w.groups);
    for (int m = 0; m < rows; ++m) store(acc[j][m], splat<F16>(0.0f));
    for (int g = numerics::slice_begin(j, slices, w.groups); g < end; g += block) {
      const int count = smaller(block, end - g);
      GroupsArgs a{};
      a.codes = records + static_cast<std::size_t>(g) * w.record_bytes;
      a.code_stride = w.record_bytes;
      a.sides = a.codes + unit_bytes;
      a.side_stride = w.record_bytes;
      a.dtype = w.dtype;
      a.groups = count;
      a.units = units;
      a.x_row = w.group;
      int bits = w.bits;
      if (unpack) {
        unpack_units(w.bits, a.codes, w.record_bytes, count, units, scratch.unpacked);
        a.codes = scratch.unpacked;
        a.code_stride = static_cast<std::size_t>(units) * kUnitCodes / 2 * 64;
        bits = kUnpackedBits;
      }
      for (int m = 0; m < rows; m += kTileRows) {
        const int tile_first = first + m;
        const int tile_rows = smaller(kTileRows, in.rows - tile_first);
        a.x_group = static_cast<std::int64_t>(tile_rows) * w.group;
        a.x = in.codes + static_cast<std::int64_t>(tile_first) * in.in + g * a.x_group;
        a.scales_group = 2 * tile_rows;
        a.scales = in.scales + static_cast<std::int64_t>(tile_first) * 2 * w.groups + g * a.scales_group;
        a.acc = acc[j][m];
        multiply_tile(bits, a, tile_rows);
      }
    }
  }
  if (slices == 1) return;
  for (int m = 0; m < rows; ++m) {
    const auto part = [&](int j) { return load<F16>(scratch.slices[j][m]); };
    const F16 low = add(add(part(0), part(1)), add(part(2), part(3)));
    const F16 high = add(add(part(4), part(5)), add(part(6), part(7)));
    store(y[m], add(low, high));
  }
}

void quantise_row(const float* x, int in, int group, std::int16_t* codes, std::int64_t code_stride,
                  float* scales, std::int64_t scale_stride) {
  for (int g = 0; g * group < in; ++g) {
    const numerics::GroupScale s = numerics::quantise_group(x + g * group, group, codes + g * code_stride);
    scales[g * scale_stride] = s.d;
    scales[g * scale_stride + 1] = s.sum;
  }
}
