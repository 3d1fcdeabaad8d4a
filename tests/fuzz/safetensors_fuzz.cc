// Any bytes as a safetensors file: an Error or a result that stays inside the bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace {

using mererun::TensorEntry;

void check_entries(const mererun::SafetensorsContent& content, std::span<const std::byte> image) {
  std::vector<const TensorEntry*> filled;
  for (const TensorEntry& tensor : content.tensors) {
    const auto offset = static_cast<std::uint64_t>(tensor.data - image.data());
    MERERUN_CHECK(offset >= content.data_offset && offset + tensor.bytes <= image.size(),
                  "entry inside the image");
    std::uint64_t bytes = size_of(tensor.dtype);
    for (const std::int64_t dim : tensor.shape) {
      MERERUN_CHECK(dim >= 0, "dimension");
      bytes *= static_cast<std::uint64_t>(dim);
    }
    MERERUN_CHECK(bytes == tensor.bytes, "bytes follow from dtype and shape");
    (void)describe(tensor);
    (void)find_non_finite(tensor);  // reads every byte
    if (tensor.bytes != 0) filled.push_back(&tensor);
  }
  std::sort(filled.begin(), filled.end(), [](auto* a, auto* b) { return a->data < b->data; });
  for (std::size_t i = 1; i < filled.size(); ++i) {
    MERERUN_CHECK(filled[i - 1]->data + filled[i - 1]->bytes <= filled[i]->data, "tensors do not overlap");
  }
}

void try_image(std::span<const std::byte> image) {
  try {
    check_entries(mererun::parse_safetensors(image, "fuzz"), image);
  } catch (const mererun::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try_image(bytes);
  // The same bytes as a header with a fitting length before it and 16 data bytes after it: mutations of the
  // text then need not keep the length field in step.
  std::vector<std::byte> image(8 + size + 16);
  const std::uint64_t length = size;
  std::memcpy(image.data(), &length, 8);
  std::copy(bytes.begin(), bytes.end(), image.begin() + 8);
  try_image(image);
  return 0;
}
