#include "tests/checkpoint/test_files.h"

#include <fmt/format.h>

#include <stdexcept>

namespace mererun::testing {

std::string safetensors_image(std::uint64_t stated_length, std::string_view header, std::string_view data) {
  std::string image;
  for (int i = 0; i < 8; ++i) image += static_cast<char>(stated_length >> (8 * i));
  image += header;
  image += data;
  return image;
}

std::string safetensors_image(std::string_view header, std::string_view data) {
  return safetensors_image(header.size(), header, data);
}

std::string image_of_u8_tensors(const std::vector<std::string>& names, std::size_t bytes_each) {
  std::string header = "{";
  std::size_t offset = 0;
  for (const std::string& name : names) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})",
                          offset == 0 ? "" : ",", name, bytes_each, offset, offset + bytes_each);
    offset += bytes_each;
  }
  header += "}";
  return safetensors_image(header, std::string(offset, '\0'));
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("expected an Error, got none");
}

}  // namespace mererun::testing
