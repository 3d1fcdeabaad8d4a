#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/linear_source.h"

namespace mererun::cuda_check {

/// Random bytes that affine weights of any shape borrow from: full-range codes, small scales, biases that
/// centre the values.
class RandomWeights {
 public:
  RandomWeights(std::size_t most_code_bytes, std::size_t most_sides);

  LinearSource affine(const std::string& name, int out, int in, int bits = 4, int experts = 1) const;

 private:
  std::vector<std::uint64_t> codes_;
  std::vector<std::uint16_t> scales_, biases_;
};

}  // namespace mererun::cuda_check
