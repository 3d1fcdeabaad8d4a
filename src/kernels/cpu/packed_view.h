#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/linear_source.h"

namespace mererun::cpu {

/// Output rows of a panel: one per 32-bit lane of a 512-bit vector.
inline constexpr int kPanelRows = 16;
/// Codes of a unit: what 16 rows' codes fill `bits` 64-byte vectors with.
inline constexpr int kUnitCodes = 32;
/// Elements of a block of the dense dot product: 32 lanes, two elements each.
inline constexpr int kDenseBlock = 64;

/// A weight as the kernels read it: a plain description that files of every instruction set share.
///
/// Affine: panels of 16 output rows; a panel holds its groups in ascending order, each a record of codes
/// [group / 32 units][bits vectors][16 lanes] u32, then scales [16] and biases [16] in the checkpoint's type.
/// A unit stores its codes as bit planes (2 = P2, 4 = P4, 6 = P4 P2, 8 = P8). In plane Pb the lane of vector
/// v holds codes 2j (low half) and 2j + 1 (high half) of pair j = v * 16/b + i at bit b * i of each half, so
/// that a shift and a mask give a pair of int16. Codes of 3 and 5 bits lie the same way, 5 and 3 to a half,
/// which leaves bit 15 of each half: in vector v it is bit v of pair 15. Rows past `out` are zero.
///
/// Dense: rows of `in` elements as the checkpoint stores them (bf16), or [in / 64][32 even, 32 odd] padded
/// with zeros (`planar`).
struct PackedView {
  WeightFormat format = WeightFormat::kDense;
  DType dtype = DType::kBF16;  // affine: of scales and biases
  int experts = 1;
  int out = 0;
  int in = 0;
  int panels = 0;  // of one expert
  const std::byte* data = nullptr;

  int bits = 0;
  int group = 0;
  int groups = 0;                // in / group
  std::size_t record_bytes = 0;  // of one group of one panel
  std::size_t panel_bytes = 0;

  bool planar = false;
  std::size_t row_bytes = 0;
  std::size_t expert_bytes = 0;  // between the starts of two experts

  [[gnu::always_inline]] const std::byte* panel(int expert, int p) const {
    return data + (static_cast<std::size_t>(expert) * static_cast<std::size_t>(panels) +
                   static_cast<std::size_t>(p)) *
                      panel_bytes;
  }
  [[gnu::always_inline]] const std::byte* row(int expert, int r) const {
    return data + static_cast<std::size_t>(expert) * expert_bytes + static_cast<std::size_t>(r) * row_bytes;
  }
  /// Rows of a panel that exist.
  [[gnu::always_inline]] int panel_rows(int p) const {
    return out - p * kPanelRows < kPanelRows ? out - p * kPanelRows : kPanelRows;
  }
  /// What reading one panel costs, for splitting work.
  [[gnu::always_inline]] std::size_t cost() const {
    return format == WeightFormat::kAffine ? panel_bytes : kPanelRows * row_bytes;
  }
};

/// Activation rows in the form the linear kernels read. A tile is 8 rows (the last one fewer).
///
/// Affine: tile t starts at codes + t * 8 * in; inside [groups][tile rows][group]. Its scales start at
/// scales + t * 16 * groups; inside [groups][tile rows][d, D].
/// Dense: row r is planar + r * planar_stride, [in / 64][32 even, 32 odd], the tail zero.
struct RowsView {
  int rows = 0;
  int in = 0;
  int group = 0;
  const std::int16_t* codes = nullptr;
  const float* scales = nullptr;
  const float* planar = nullptr;
  std::int64_t planar_stride = 0;
};

inline constexpr int kTileRows = 8;  // of RowsView

/// Padded length of a planar row.
inline constexpr int planar_length(int in) { return (in + kDenseBlock - 1) / kDenseBlock * kDenseBlock; }

}  // namespace mererun::cpu
