#pragma once

#include "kernels/cuda/affine_view.h"
#include "kernels/cuda/launch.h"
#include "tensor/dtype.h"

namespace mererun::cuda {

/// Tiles of a weight as the checkpoint stores them, in device memory: 16 row slots a tile, absent rows zero.
struct StoredTiles {
  const std::uint8_t* weight = nullptr;  // [tiles * 16, in * bits / 8]
  const std::uint8_t* scales = nullptr;  // [tiles * 16, in / group] of `dtype`
  const std::uint8_t* biases = nullptr;
  int tiles = 0;
  int bits = 0;
  DType dtype = DType::kBF16;
};

/// Writes the records of `from` at `to`, which is the place of the first tile. `layout` says their form.
void run_pack_affine(const LaunchContext& context, const StoredTiles& from, const AffineView& layout,
                     std::uint8_t* to);

}  // namespace mererun::cuda
