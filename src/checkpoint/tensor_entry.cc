#include "checkpoint/tensor_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace mererun {
namespace {

// Every float format here is non-finite exactly when all bits of `Mask` are set.
template <typename Word, Word Mask>
std::optional<std::uint64_t> find_masked(const std::byte* data, std::uint64_t count) {
  // A part is tested without a branch per element, which compilers turn into vector code; only a part that
  // holds a hit is searched. The copy makes unaligned data legal to read.
  constexpr std::uint64_t kPart = 4096;
  std::array<Word, kPart> words;
  for (std::uint64_t first = 0; first < count; first += kPart) {
    const std::uint64_t n = std::min(kPart, count - first);
    std::memcpy(words.data(), data + first * sizeof(Word), n * sizeof(Word));
    unsigned hits = 0;
    for (std::uint64_t i = 0; i < n; ++i) hits |= static_cast<unsigned>((words[i] & Mask) == Mask);
    if (hits == 0) continue;
    for (std::uint64_t i = 0; i < n; ++i) {
      if ((words[i] & Mask) == Mask) return first + i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string describe_type(DType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}] {}", fmt::join(shape, ", "), name_of(dtype));
}

std::string describe(const TensorEntry& tensor) {
  std::string text = describe_type(tensor.dtype, tensor.shape);
  if (tensor.file != nullptr) text += " in " + tensor.file->path().filename().string();
  return text;
}

std::optional<std::uint64_t> find_non_finite(const TensorEntry& tensor) {
  const std::uint64_t count = tensor.num_elements();
  switch (tensor.dtype) {
    case DType::kBF16: return find_masked<std::uint16_t, 0x7f80>(tensor.data, count);
    case DType::kF16: return find_masked<std::uint16_t, 0x7c00>(tensor.data, count);
    case DType::kF32: return find_masked<std::uint32_t, 0x7f800000>(tensor.data, count);
    case DType::kF8E4M3: return find_masked<std::uint8_t, 0x7f>(tensor.data, count);
    default: return std::nullopt;
  }
}

}  // namespace mererun
