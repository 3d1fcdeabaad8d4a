#include "kernels/reference/unpack.h"

#include <cstring>

namespace mererun::reference {

std::vector<std::uint8_t> unpack_codes(const LinearSource& s) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(s.experts) * static_cast<std::size_t>(s.out) *
                                  static_cast<std::size_t>(s.in));
  std::uint8_t* to = codes.data();
  const std::uint32_t mask = (1u << s.bits) - 1;
  for (int expert = 0; expert < s.experts; ++expert) {
    for (int row = 0; row < s.out; ++row) {
      const auto* stream = static_cast<const unsigned char*>(s.weight) +
                           (expert * s.rows_between_experts() + row) * s.weight_row_bytes();
      // Eight codes fill `bits` whole bytes, and a row holds a multiple of 32 codes.
      for (int i = 0; i < s.in; i += 8, stream += s.bits) {
        std::uint64_t window = 0;
        std::memcpy(&window, stream, static_cast<std::size_t>(s.bits));
        for (int j = 0; j < 8; ++j) *to++ = static_cast<std::uint8_t>((window >> (s.bits * j)) & mask);
      }
    }
  }
  return codes;
}

}  // namespace mererun::reference
