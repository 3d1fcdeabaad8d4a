#include <algorithm>

#include "kernels/cpu/kernel_table.h"
#include "kernels/numerics.h"

namespace mererun::cpu {

std::size_t worker_scratch_bytes(const ScratchShape& shape) {
  // Linear kernels: slices and two products of a pass, a block of codes as int16 and its dot products, and
  // byte planes (isa/common.h).
  constexpr std::size_t kLinear = (numerics::kLinearSlices + 2) * kMaxPassRows * kPanelRows * sizeof(float) +
                                  std::size_t{16} * kUnitCodes * 32 +
                                  std::size_t{16} * kTileRows * kPanelRows * sizeof(std::int32_t) +
                                  std::size_t{2} * kPlaneCodes;
  // Attention: a tile of keys, then per query two partial sums and its description (isa/attention.h).
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  const auto queries = static_cast<std::size_t>(shape.queries);
  const std::size_t attention =
      (dim * numerics::kTilePositions + (2 * queries + 1) * (dim + 2)) * sizeof(float) + 64 * queries;
  const std::size_t delta = static_cast<std::size_t>(shape.key_dim) * kPanelRows * sizeof(float);
  const std::size_t router = static_cast<std::size_t>(shape.experts) * sizeof(float);
  return std::max({kLinear, attention, delta, router});
}

}  // namespace mererun::cpu
