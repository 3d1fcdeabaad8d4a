#include "kernels/cpu/pack_affine.h"

#include <cstring>

namespace mererun::cpu {
namespace {

/// Exchanges the bit fields of `x` selected by `mask` with those `by` bits above.
std::uint32_t swap_fields(std::uint32_t x, std::uint32_t mask, int by) {
  const std::uint32_t t = (x ^ (x >> by)) & mask;
  return x ^ t ^ (t << by);
}

/// Even-numbered codes of a word to its low half, odd-numbered ones to the high half.
std::uint32_t part_codes_8(std::uint32_t x) { return swap_fields(x, 0x0000ff00u, 8); }
std::uint32_t part_codes_4(std::uint32_t x) { return part_codes_8(swap_fields(x, 0x00f000f0u, 4)); }
std::uint32_t part_codes_2(std::uint32_t x) { return part_codes_4(swap_fields(x, 0x0c0c0c0cu, 2)); }

using Part = std::uint32_t (*)(std::uint32_t);

/// One plane of 32 codes, packed densely (code i at bit width * i), to lane `lane` of `width` vectors.
template <int kWidth, Part kPart>
void put_plane(const std::uint32_t* words, std::byte* out) {
  for (int v = 0; v < kWidth; ++v) {
    const std::uint32_t lane = kPart(words[v]);
    std::memcpy(out + 64 * v, &lane, 4);
  }
}

/// Splits 32 codes of kLow + kHigh bits into their low and high fields, each packed densely.
template <int kLow, int kHigh>
void split_codes(const std::byte* stream, std::uint32_t* low, std::uint32_t* high) {
  constexpr int kBits = kLow + kHigh;
  for (int i = 0; i < kUnitCodes; i += 8) {  // eight codes fill kBits bytes
    std::uint64_t window = 0;
    std::memcpy(&window, stream + i / 8 * kBits, kBits);
    std::uint64_t l = 0, h = 0;
    for (int j = 0; j < 8; ++j) {
      const std::uint64_t code = window >> (kBits * j);
      l |= (code & ((1u << kLow) - 1)) << (kLow * j);
      h |= (code >> kLow & ((1u << kHigh) - 1)) << (kHigh * j);
    }
    std::memcpy(reinterpret_cast<std::byte*>(low) + i / 8 * kLow, &l, kLow);
    std::memcpy(reinterpret_cast<std::byte*>(high) + i / 8 * kHigh, &h, kHigh);
  }
}

/// 32 codes of a width that does not divide 16, packed densely, as whole fields and one pair of spare bits.
template <int kBits>
void put_fields(const std::byte* stream, std::byte* out) {
  constexpr int kFields = 16 / kBits;
  static_assert(kFields * kBits == 15, "one bit of each half is spare");
  std::uint32_t lane[kBits] = {};
  for (int i = 0; i < kUnitCodes; i += 8) {  // eight codes fill kBits bytes
    std::uint64_t window = 0;
    std::memcpy(&window, stream + i / 8 * kBits, kBits);
    for (int j = 0; j < 8; ++j) {
      const auto code = static_cast<std::uint32_t>(window >> (kBits * j) & ((1u << kBits) - 1));
      const int pair = (i + j) / 2, half = 16 * (j % 2);
      if (pair < 15) {
        lane[pair / kFields] |= code << (half + kBits * (pair % kFields));
      } else {
        for (int v = 0; v < kBits; ++v) lane[v] |= (code >> v & 1) << (half + 15);
      }
    }
  }
  for (int v = 0; v < kBits; ++v) std::memcpy(out + 64 * v, &lane[v], 4);
}

/// 32 codes of one row (4 * kBits bytes of its stream) into lane 0 of `out`.
template <int kBits>
void put_unit(const std::byte* stream, std::byte* out) {
  std::uint32_t low[8], high[4];
  if constexpr (kBits == 2 || kBits == 4 || kBits == 8) {
    std::memcpy(low, stream, 4 * kBits);
    if constexpr (kBits == 2) put_plane<2, part_codes_2>(low, out);
    if constexpr (kBits == 4) put_plane<4, part_codes_4>(low, out);
    if constexpr (kBits == 8) put_plane<8, part_codes_8>(low, out);
  } else if constexpr (kBits == 3 || kBits == 5) {
    put_fields<kBits>(stream, out);
  } else {
    static_assert(kBits == 6);
    split_codes<4, 2>(stream, low, high);
    put_plane<4, part_codes_4>(low, out);
    put_plane<2, part_codes_2>(high, out + 256);
  }
}

template <int kBits>
void put_row(const std::byte* stream, const PackedView& layout, std::byte* out) {
  const int units = layout.group / kUnitCodes;
  for (int g = 0; g < layout.groups; ++g) {
    for (int u = 0; u < units; ++u) {
      put_unit<kBits>(stream, out + static_cast<std::size_t>(u * kBits) * 64);
      stream += 4 * kBits;
    }
    out += layout.record_bytes;
  }
}

void put_codes(const std::byte* stream, const PackedView& layout, std::byte* out) {
  switch (layout.bits) {
    case 2: return put_row<2>(stream, layout, out);
    case 3: return put_row<3>(stream, layout, out);
    case 4: return put_row<4>(stream, layout, out);
    case 5: return put_row<5>(stream, layout, out);
    case 6: return put_row<6>(stream, layout, out);
    default: return put_row<8>(stream, layout, out);
  }
}

}  // namespace

void pack_affine_panel(const LinearSource& source, const PackedView& layout, int expert, int panel,
                       std::byte* out) {
  const std::size_t side = size_of(source.dtype);
  const std::size_t sides_at = layout.record_bytes - 2 * kPanelRows * side;
  for (int lane = 0; lane < layout.panel_rows(panel); ++lane) {
    const std::int64_t row = expert * source.rows_between_experts() + panel * kPanelRows + lane;
    put_codes(static_cast<const std::byte*>(source.weight) + row * source.weight_row_bytes(), layout,
              out + 4 * lane);
    const auto* scales = static_cast<const std::byte*>(source.scales) + row * source.scale_row_bytes();
    const auto* biases = static_cast<const std::byte*>(source.biases) + row * source.scale_row_bytes();
    std::byte* to = out + sides_at + static_cast<std::size_t>(lane) * side;
    for (int g = 0; g < layout.groups; ++g, to += layout.record_bytes) {
      std::memcpy(to, scales + static_cast<std::size_t>(g) * side, side);
      std::memcpy(to + kPanelRows * side, biases + static_cast<std::size_t>(g) * side, side);
    }
  }
}

}  // namespace mererun::cpu
