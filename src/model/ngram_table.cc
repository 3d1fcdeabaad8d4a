#include "model/ngram_table.h"

#include <cstring>

#include "kernels/numerics.h"

namespace mererun {

namespace {

float element(DType dtype, const std::byte* data, int index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, data + 4 * static_cast<std::ptrdiff_t>(index), sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + 2 * static_cast<std::ptrdiff_t>(index), sizeof bits);
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace

NgramTable::NgramTable(const FlashConfig& config, const HostNgramTable& host)
    : width_(host.width),
      format_(host.format),
      hash_(config, host.buffers),
      reader_(host.shards, host.rows_per_shard, host.options) {}

void NgramTable::widen(const std::byte* row, float* out) const {
  if (format_.format == WeightFormat::kDense) {
    for (int i = 0; i < width_; ++i) out[i] = element(format_.dtype, row, i);
    return;
  }
  const std::byte* scales = row + format_.weight_row_bytes();
  const std::byte* biases = scales + format_.scale_row_bytes();
  const std::uint64_t mask = (1u << format_.bits) - 1;
  for (int i = 0; i < width_; i += 8, row += format_.bits) {  // eight codes fill `bits` whole bytes
    const float s = element(format_.dtype, scales, i / format_.group);
    const float b = element(format_.dtype, biases, i / format_.group);
    std::uint64_t window = 0;
    std::memcpy(&window, row, static_cast<std::size_t>(format_.bits));
    for (int j = 0; j < 8; ++j)
      out[i + j] = numerics::fma_f32(s, static_cast<float>((window >> (format_.bits * j)) & mask), b);
  }
}

std::span<const float> NgramTable::finish(std::size_t rows) {
  bytes_.resize(rows * reader_.row_bytes());
  values_.resize(rows * static_cast<std::size_t>(width_));
  reader_.finish(bytes_);
  for (std::size_t r = 0; r < rows; ++r)
    widen(bytes_.data() + r * reader_.row_bytes(), values_.data() + r * static_cast<std::size_t>(width_));
  return values_;
}

}  // namespace mererun
