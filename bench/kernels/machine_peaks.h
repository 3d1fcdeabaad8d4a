#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/buffer.h"
#include "kernels/ops.h"

namespace mererun::bench {

/// A block of memory too large for the caches, on the pages that weights lie on, read over and over.
class ReadProbe {
 public:
  explicit ReadProbe(std::size_t bytes);
  std::size_t bytes() const { return words_ * sizeof(std::uint64_t); }
  /// Reads part `worker` of `workers` once, front to back, with the widest loads that the build has.
  void read(int worker, int workers);

 private:
  std::size_t words_;
  Buffer memory_;
  std::uint64_t sink_ = 0;
};

/// The integer multiply-add instructions that a linear kernel is made of, on registers only.
struct MultiplyProbe {
  std::string_view name;
  std::int64_t (*run)(std::int64_t rounds);  // returns the int16 multiply-adds done
};
/// What `isa` could reach: vpdpwssd, or vpmaddwd and vpaddd.
MultiplyProbe multiply_probe(CpuIsa isa);

}  // namespace mererun::bench
