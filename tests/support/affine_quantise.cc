#include "tests/support/affine_quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mererun::testing {

namespace {

struct GroupCode {
  float scale = 0;
  float bias = 0;
};

GroupCode choose_code(std::span<const float> values, int bits) {
  const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
  const float low = *low_at;
  const float high = *high_at;
  const float steps = static_cast<float>((1 << bits) - 1);
  float scale = std::max((high - low) / steps, 1e-7f);
  const bool from_low = std::abs(low) > std::abs(high);
  if (!from_low) scale = -scale;
  const float edge = from_low ? low : high;
  const float code = std::nearbyint(edge / scale);
  GroupCode result{scale, 0.0f};
  if (code != 0.0f) result = {edge / code, edge};
  return {bf16_to_f32(f32_to_bf16(result.scale)), bf16_to_f32(f32_to_bf16(result.bias))};
}

/// Sets `bits` bits of a little-endian bit stream.
void put_bits(std::string& row, std::size_t first_bit, int bits, std::uint32_t code) {
  for (int b = 0; b < bits; ++b) {
    const std::size_t at = first_bit + static_cast<std::size_t>(b);
    if (((code >> b) & 1u) != 0) row[at / 8] = static_cast<char>(row[at / 8] | (1 << (at % 8)));
  }
}

float read_float(const void* data, std::int64_t index, DType dtype) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * index, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes + 2 * index, sizeof(bits));
  return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace

std::vector<StoredTensor> quantise_affine(const std::string& module, const std::vector<std::int64_t>& leading,
                                          int in, std::span<const float> values, int bits, int group) {
  const std::size_t rows = values.size() / static_cast<std::size_t>(in);
  const std::size_t row_bytes = static_cast<std::size_t>(in) * static_cast<std::size_t>(bits) / 8;
  std::string packed;
  std::vector<float> scales;
  std::vector<float> biases;
  for (std::size_t r = 0; r < rows; ++r) {
    std::string row(row_bytes, '\0');
    for (int first = 0; first < in; first += group) {
      const auto part = values.subspan(r * static_cast<std::size_t>(in) + static_cast<std::size_t>(first),
                                       static_cast<std::size_t>(group));
      const GroupCode code = choose_code(part, bits);
      scales.push_back(code.scale);
      biases.push_back(code.bias);
      for (std::size_t i = 0; i < part.size(); ++i) {
        const float q = std::clamp(std::nearbyint((part[i] - code.bias) / code.scale), 0.0f,
                                   static_cast<float>((1 << bits) - 1));
        put_bits(row, (static_cast<std::size_t>(first) + i) * static_cast<std::size_t>(bits), bits,
                 static_cast<std::uint32_t>(q));
      }
    }
    packed += row;
  }
  const auto shape = [&](std::int64_t last) {
    std::vector<std::int64_t> all = leading;
    all.push_back(last);
    return all;
  };
  return {{module + ".weight", DType::kU32, shape(std::int64_t{in} * bits / 32), std::move(packed)},
          bf16_tensor(module + ".scales", shape(in / group), scales),
          bf16_tensor(module + ".biases", shape(in / group), biases)};
}

std::vector<float> dequantise(const LinearSource& source, int expert) {
  std::vector<float> values;
  for (int r = 0; r < source.out; ++r) {
    const std::int64_t row = expert * source.rows_between_experts() + r;
    for (int i = 0; i < source.in; ++i) {
      if (source.format == WeightFormat::kDense) {
        values.push_back(read_float(source.weight, row * source.in + i, source.dtype));
        continue;
      }
      const auto* bytes = static_cast<const unsigned char*>(source.weight) + row * source.weight_row_bytes();
      std::uint32_t code = 0;
      for (int b = 0; b < source.bits; ++b) {
        const int at = i * source.bits + b;
        code |= static_cast<std::uint32_t>((bytes[at / 8] >> (at % 8)) & 1) << b;
      }
      const std::int64_t group = row * (source.in / source.group) + i / source.group;
      values.push_back(std::fma(read_float(source.scales, group, source.dtype), static_cast<float>(code),
                                read_float(source.biases, group, source.dtype)));
    }
  }
  return values;
}

}  // namespace mererun::testing
