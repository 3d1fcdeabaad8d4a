#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/linear_source.h"
#include "tests/support/safetensors_writer.h"

namespace mererun::testing {

/// Quantises rows of `in` values to `bits`-bit codes with one BF16 scale and bias per group, the way MLX
/// does: the entry of largest magnitude of a group is code 0 and exact up to the rounding of the bias.
/// `leading` are the axes before the last. Returns `<module>.weight`, `.scales` and `.biases`.
std::vector<StoredTensor> quantise_affine(const std::string& module, const std::vector<std::int64_t>& leading,
                                          int in, std::span<const float> values, int bits, int group);

/// The weights of one expert of a source as f32 [out, in], element by element from the stored bits: a reading
/// independent of the kernels.
std::vector<float> dequantise(const LinearSource& source, int expert = 0);

}  // namespace mererun::testing
