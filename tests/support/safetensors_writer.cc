#include "tests/support/safetensors_writer.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/support/temp_folder.h"

namespace mererun::testing {

StoredTensor f32_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  std::string data(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
  return {std::move(name), DType::kF32, std::move(shape), std::move(data)};
}

StoredTensor bf16_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  std::string data(2 * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = f32_to_bf16(values[i]);
    std::memcpy(data.data() + 2 * i, &bits, sizeof(bits));
  }
  return {std::move(name), DType::kBF16, std::move(shape), std::move(data)};
}

std::string safetensors_image(std::span<const StoredTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const StoredTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    data += tensor.data;
    header[tensor.name] = {
        {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string image;
  for (int byte = 0; byte < 8; ++byte) image.push_back(static_cast<char>((text.size() >> (8 * byte)) & 0xff));
  return image + text + data;
}

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors) {
  write_file(path, safetensors_image(tensors));
}

}  // namespace mererun::testing
