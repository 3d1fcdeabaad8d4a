#pragma once

#include <cstdint>

namespace mererun {

using TokenId = std::int32_t;   // index into the vocabulary
using Position = std::int32_t;  // absolute index of a token in its sequence, from 0

}  // namespace mererun
