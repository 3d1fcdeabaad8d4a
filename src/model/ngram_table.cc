#include "model/ngram_table.h"

#include <cstring>

#include "kernels/numerics.h"
#include "tensor/element.h"

namespace mererun {

NgramTable::NgramTable(const FlashConfig& config, const HostNgramTable& host)
    : width_(host.width),
      format_(host.format),
      hash_(config, host.buffers),
      reader_(host.shards, host.rows_per_shard, host.options) {}

void NgramTable::widen(const std::byte* row, float* out) const {
  if (format_.format == WeightFormat::kDense) {
    for (int i = 0; i < width_; ++i) out[i] = element_f32(format_.dtype, row, i);
    return;
  }
  const std::byte* scales = row + format_.weight_row_bytes();
  const std::byte* biases = scales + format_.scale_row_bytes();
  const std::uint64_t mask = (1u << format_.bits) - 1;
  for (int i = 0; i < width_; i += 8, row += format_.bits) {  // eight codes fill `bits` whole bytes
    const float s = element_f32(format_.dtype, scales, i / format_.group);
    const float b = element_f32(format_.dtype, biases, i / format_.group);
    std::uint64_t window = 0;
    std::memcpy(&window, row, static_cast<std::size_t>(format_.bits));
    for (int j = 0; j < 8; ++j)
      out[i + j] = numerics::fma_f32(s, static_cast<float>((window >> (format_.bits * j)) & mask), b);
  }
}

void NgramTable::expect(std::span<const TokenId> context, std::span<const TokenId> ids) {
  expected_.clear();
  hash_.append_rows(context, ids, expected_);
  reader_.expect(expected_);
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
