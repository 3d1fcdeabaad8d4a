#pragma once

#include <cstddef>
#include <functional>

#include "tensor/linear_source.h"

namespace mererun {

/// Called when checkpoint bytes have been converted and are not read again: a mapping may drop its pages.
/// From the thread that prepares. May be empty.
using OnConverted = std::function<void(const void* data, std::size_t bytes)>;

/// Reports every array of a converted source. Experts of a fused stack lie apart: only their own rows are
/// done with.
void tell_converted(const OnConverted& tell, const LinearSource& source);

}  // namespace mererun
