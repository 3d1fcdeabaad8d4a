#include "tests/golden/golden_file.h"

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace mererun::testing {

const TensorEntry& GoldenFile::entry(const std::string& name) const {
  const TensorEntry* found = file_.find(name);
  if (found == nullptr)
    throw Error(ErrorCode::kNotFound, "golden vectors: expected " + name + ", got nothing");
  return *found;
}

std::vector<float> GoldenFile::floats(const std::string& name) const {
  const TensorEntry& e = entry(name);
  std::vector<float> out(e.num_elements());
  if (e.dtype == DType::kF32) {
    std::memcpy(out.data(), e.data, e.bytes);
  } else {
    MERERUN_CHECK(e.dtype == DType::kF16, "F32 or F16");
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, e.data + 2 * i, 2);
      out[i] = f16_to_f32(bits);
    }
  }
  return out;
}

std::vector<std::int32_t> GoldenFile::ints(const std::string& name) const {
  const TensorEntry& e = entry(name);
  MERERUN_CHECK(e.dtype == DType::kI32, "I32");
  std::vector<std::int32_t> out(e.num_elements());
  std::memcpy(out.data(), e.data, e.bytes);
  return out;
}

std::vector<std::int64_t> GoldenFile::longs(const std::string& name) const {
  const TensorEntry& e = entry(name);
  MERERUN_CHECK(e.dtype == DType::kI64, "I64");
  std::vector<std::int64_t> out(e.num_elements());
  std::memcpy(out.data(), e.data, e.bytes);
  return out;
}

std::vector<std::uint8_t> GoldenFile::bytes(const std::string& name) const {
  const TensorEntry& e = entry(name);
  MERERUN_CHECK(e.dtype == DType::kU8, "U8");
  const auto* data = reinterpret_cast<const std::uint8_t*>(e.data);
  return {data, data + e.bytes};
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  MERERUN_CHECK(a.size() == b.size(), "arrays of one size");
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace mererun::testing
