#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pack_affine.h"
#include "kernels/cuda/stored.cuh"

namespace mererun::cuda {

inline namespace pack_affine_cu {

constexpr int kThreads = 256;

/// Four codes of row slot `row` from element k on, one a byte.
__device__ std::uint32_t four_codes(const StoredTiles& from, const AffineView& w, std::int64_t row, int k) {
  const std::uint8_t* stream = from.weight + row * (static_cast<std::int64_t>(w.in) * from.bits / 8);
  std::uint32_t bytes = 0;
  for (int j = 0; j < 4; ++j) bytes |= stored_code(stream, from.bits, k + j) << (8 * j);
  return bytes;
}

/// Word `index` of the codes of a record.
__device__ std::uint32_t code_word(const StoredTiles& from, const AffineView& w, std::int64_t first_row,
                                   int first_k, int index) {
  if (w.stored_bits == 8) {
    const int j = index % 4, lane = index / 4 % 32, step = index / 128;
    return four_codes(from, w, first_row + lane / 4 + (j & 1) * 8,
                      first_k + 32 * step + lane % 4 * 4 + (j >> 1) * 16);
  }
  const int j = index % 2, step = index / 2 % w.steps();
  const int lane = index / (2 * w.steps());
  const int k = first_k + 32 * step + lane % 4 * 4 + j * 16;
  return four_codes(from, w, first_row + lane / 4, k) |
         (four_codes(from, w, first_row + lane / 4 + 8, k) << 4);
}

/// Word `index` of the sides of a record: per row quad s, b, s8, b8.
__device__ std::uint32_t side_word(const StoredTiles& from, const AffineView& w, std::int64_t first_row,
                                   int g, int index) {
  const auto at = [&](std::int64_t row) { return row * w.groups() + g; };
  if (w.wide_sides) {
    const std::int64_t row = first_row + index / 4 + (index & 2 ? 8 : 0);
    return numerics::bits_of(widened(index & 1 ? from.biases : from.scales, at(row), from.dtype));
  }
  const std::int64_t row = first_row + index / 2 + (index & 1 ? 8 : 0);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(from.scales);
  const auto* biases = reinterpret_cast<const std::uint16_t*>(from.biases);
  return scales[at(row)] | (static_cast<std::uint32_t>(biases[at(row)]) << 16);
}

/// One block a record.
__global__ void __launch_bounds__(kThreads)
    pack_affine_kernel(StoredTiles from, AffineView w, std::uint8_t* to) {
  const int g = static_cast<int>(blockIdx.x);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTileRows;
  auto* record = reinterpret_cast<std::uint32_t*>(to + blockIdx.y * w.tile_bytes() +
                                                  static_cast<std::int64_t>(g) * w.record_bytes());
  const int code_words = w.code_bytes() / 4;
  for (int i = static_cast<int>(threadIdx.x); i < w.record_bytes() / 4; i += kThreads) {
    record[i] = i < code_words ? code_word(from, w, first_row, g * w.group, i)
                               : side_word(from, w, first_row, g, i - code_words);
  }
}

}  // namespace pack_affine_cu

void run_pack_affine(const LaunchContext& context, const StoredTiles& from, const AffineView& layout,
                     std::uint8_t* to) {
  LaunchContext ordered = context;
  ordered.early_start = false;       // the kernel does not wait for what fills the stored tiles
  constexpr int kMostTiles = 32768;  // of one launch: the grid's second axis is short
  for (int first = 0; first < from.tiles; first += kMostTiles) {
    const int count = from.tiles - first < kMostTiles ? from.tiles - first : kMostTiles;
    StoredTiles part = from;
    const std::int64_t rows = static_cast<std::int64_t>(first) * kTileRows;
    const std::int64_t side_bytes = static_cast<std::int64_t>(size_of(from.dtype)) * layout.groups();
    part.weight += rows * (static_cast<std::int64_t>(layout.in) * from.bits / 8);
    part.scales += rows * side_bytes;
    part.biases += rows * side_bytes;
    launch(ordered, "pack_affine", pack_affine_kernel,
           {dim3(static_cast<unsigned>(layout.groups()), static_cast<unsigned>(count)), dim3(kThreads)}, part,
           layout, to + first * layout.tile_bytes());
  }
}

}  // namespace mererun::cuda
