#include "tests/support/safetensors_writer.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "tests/support/temp_folder.h"

namespace mererun::testing {

StoredTensor f32_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  std::string data(values.size_bytes(), '\0');
  if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
  return {.name = std::move(name), .dtype = DType::kF32, .shape = std::move(shape), .data = std::move(data)};
}

StoredTensor bf16_tensor(std::string name, std::vector<std::int64_t> shape, std::span<const float> values) {
  std::string data(2 * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = f32_to_bf16(values[i]);
    std::memcpy(data.data() + 2 * i, &bits, sizeof(bits));
  }
  return {.name = std::move(name), .dtype = DType::kBF16, .shape = std::move(shape), .data = std::move(data)};
}

namespace {

std::string header_of(std::span<const StoredTensor> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::uint64_t begin = end;
    end += tensor.data.size() + tensor.zeros;
    header[tensor.name] = {
        {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  const std::string text = header.dump();
  std::string length;
  for (int byte = 0; byte < 8; ++byte)
    length.push_back(static_cast<char>((text.size() >> (8 * byte)) & 0xff));
  return length + text;
}

}  // namespace

std::string safetensors_image(std::span<const StoredTensor> tensors) {
  std::string image = header_of(tensors);
  for (const StoredTensor& tensor : tensors) image.append(tensor.data).append(tensor.zeros, '\0');
  return image;
}

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors) {
  const std::string header = header_of(tensors);
  write_file(path, header);
  std::ofstream file(path, std::ios::binary | std::ios::app | std::ios::ate);
  std::uint64_t size = header.size();
  for (const StoredTensor& tensor : tensors) {
    file << tensor.data << std::flush;
    size += tensor.data.size() + tensor.zeros;
    if (tensor.zeros != 0) std::filesystem::resize_file(path, size);  // what is appended next comes behind it
  }
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace mererun::testing
