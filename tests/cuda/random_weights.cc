#include "tests/cuda/random_weights.h"

#include "tensor/dtype.h"

namespace mererun::cuda_check {

RandomWeights::RandomWeights(std::size_t most_code_bytes, std::size_t most_sides)
    : codes_(most_code_bytes / 8 + 1), scales_(most_sides), biases_(most_sides) {
  std::uint64_t state = 88172645463325252u;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (std::uint64_t& word : codes_) word = next();
  for (std::size_t i = 0; i < most_sides; ++i) {
    const float scale = 0.002f + 0.002f * static_cast<float>(next() >> 40) * 0x1p-24f;
    scales_[i] = f32_to_bf16(scale);
    biases_[i] = f32_to_bf16(-7.5f * scale);
  }
}

LinearSource RandomWeights::affine(const std::string& name, int out, int in, int bits, int experts) const {
  LinearSource s;
  s.name = name;
  s.format = WeightFormat::kAffine;
  s.experts = experts;
  s.out = out;
  s.in = in;
  s.bits = bits;
  s.group = 64;
  s.weight = codes_.data();
  s.scales = scales_.data();
  s.biases = biases_.data();
  return s;
}

}  // namespace mererun::cuda_check
