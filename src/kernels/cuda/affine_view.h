#pragma once

#include <cstdint>

#include "kernels/numerics.h"

namespace mererun::cuda {

inline constexpr int kTileRows = 16;  // weight rows of a record and of a matrix instruction

/// An affine weight repacked for streaming: records of 16 rows x one group, the groups of a 16-row tile one
/// after the other, tile after tile, expert after expert.
///
/// Codes of 2 to 4 bits are stored with 4, others with 8. For each 32 elements ("step") lane l of a warp owns
/// the first operand of mma.m16n8k32: bytes a0 (row l/4, elements 4(l%4)..+3), a1 (row l/4 + 8, same), a2 and
/// a3 (elements + 16). 4 bits: [lane][step] two words, low nibbles a0 / a2, high nibbles a1 / a3. 8 bits:
/// [step][lane] four words. Then, per row quad l/4, the sides {s, b, s of row + 8, b of row + 8}: bf16 where
/// the checkpoint has bf16, else f32. Rows past the matrix have codes and sides 0.
struct AffineView {
  const std::uint8_t* records = nullptr;
  int experts = 0, out = 0, in = 0, group = 0;
  int stored_bits = 0;  // 4 or 8
  bool wide_sides = false;

  MERERUN_HD int tiles() const { return (out + kTileRows - 1) / kTileRows; }
  MERERUN_HD int groups() const { return in / group; }
  MERERUN_HD int steps() const { return group / 32; }  // per group
  MERERUN_HD int code_bytes() const { return 2 * group * stored_bits; }
  MERERUN_HD int record_bytes() const { return code_bytes() + (wide_sides ? 128 : 64); }
  MERERUN_HD std::int64_t tile_bytes() const { return static_cast<std::int64_t>(groups()) * record_bytes(); }
  MERERUN_HD std::int64_t expert_bytes() const { return tiles() * tile_bytes(); }
  /// The layout that the fastest kernels are compiled for.
  bool is_common() const { return group == 64 && !wide_sides; }
  MERERUN_HD bool same_layout(const AffineView& o) const {
    return in == o.in && group == o.group && stored_bits == o.stored_bits && wide_sides == o.wide_sides;
  }
};

}  // namespace mererun::cuda
