#pragma once

#include "kernels/cpu/packed_view.h"
#include "tensor/linear_source.h"

namespace mererun::cpu {

/// Writes one panel of an affine source in the layout of its view: the codes of up to 16 rows, their scales
/// and biases. `out` is zeroed.
void pack_affine_panel(const LinearSource& source, const PackedView& layout, int expert, int panel,
                       std::byte* out);

}  // namespace mererun::cpu
