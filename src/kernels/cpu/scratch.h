#pragma once

#include <cstddef>

#include "kernels/cpu/packed_weight.h"

namespace mererun::cpu {

/// Memory that grows to the largest request and is kept, so that a steady pass allocates nothing. Contents
/// are lost when it grows.
class Scratch {
 public:
  template <typename T>
  T* get(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (memory_.size_bytes() < bytes) {
      memory_ = Buffer();  // before the new block, so that both never exist
      memory_ = allocate_pages(bytes);
    }
    return memory_.as<T>();
  }

 private:
  Buffer memory_;
};

}  // namespace mererun::cpu
