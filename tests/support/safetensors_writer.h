#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace mererun::testing {

/// A tensor to be written: `data` is its row-major little-endian bytes, or the first of them.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::string data;
  std::uint64_t zeros = 0;  // bytes after `data`; a hole in a file, which takes no room
};

StoredTensor f32_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);
/// Rounds to nearest even.
StoredTensor bf16_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values);

/// The bytes of a safetensors file with the tensors in the given order, without padding.
std::string safetensors_image(std::span<const StoredTensor> tensors);
void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors);

}  // namespace mererun::testing
