#pragma once

#include <cstddef>

#include "device/buffer.h"

namespace mererun::cuda {

/// Memory of the current device, aligned to 256 bytes, content undefined. No bytes give an empty buffer.
/// Errors: kOutOfMemory naming the bytes asked for and free.
Buffer allocate_device(std::size_t bytes);

/// Page-locked host memory, which copies in both directions at the bus's full rate. Errors: kOutOfMemory.
Buffer allocate_pinned(std::size_t bytes);

}  // namespace mererun::cuda
