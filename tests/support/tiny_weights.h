#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/tiny_checkpoint.h"

namespace mererun::testing {

/// One tensor of a tiny model as numbers, before any layout.
struct TinyTensor {
  enum class Role { kMatrix, kNorm, kPlain, kConv, kExperts };
  std::string
      name;  // canonical; matrices and stacks: the module; a stack: "layers.0.mlp.switch_mlp.gate_proj"
  Role role = Role::kPlain;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // exact in BF16; a norm: the final weight minus one
};

/// The trunk's tensors, then those of the head (names start with `mtp.`). The numbers depend only on seed,
/// name and shape, and on no library function that may round differently elsewhere.
std::vector<TinyTensor> tiny_weights(const TinySpec& spec);

}  // namespace mererun::testing
