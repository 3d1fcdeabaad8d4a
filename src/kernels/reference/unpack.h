#pragma once

#include <cstdint>
#include <vector>

#include "tensor/linear_source.h"

namespace mererun::reference {

/// The codes of an affine weight, one a byte: [experts, out, in].
std::vector<std::uint8_t> unpack_codes(const LinearSource& source);

}  // namespace mererun::reference
