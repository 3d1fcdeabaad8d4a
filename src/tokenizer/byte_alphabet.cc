#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace mererun {

namespace {

constexpr char32_t kAlphabetEnd = 0x144;

constexpr bool maps_to_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// By code point: the byte it stands for, or -1.
constexpr std::array<std::int16_t, kAlphabetEnd> make_bytes_of() {
  std::array<std::int16_t, kAlphabetEnd> table{};
  for (std::int16_t& entry : table) entry = -1;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[maps_to_itself(byte) ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return table;
}

constexpr std::array<std::int16_t, kAlphabetEnd> kBytesOf = make_bytes_of();

}  // namespace

bool append_key_bytes(std::string_view key, std::string& out) {
  const std::size_t size_before = out.size();
  for (std::size_t pos = 0; pos < key.size();) {
    const auto first = static_cast<unsigned char>(key[pos]);
    if (first < 0x80 && maps_to_itself(first)) {
      out += key[pos++];
      continue;
    }
    const Utf8Step step = utf8_step(key, pos);
    if (step.kind != Utf8Kind::kValid || step.code_point >= kAlphabetEnd || kBytesOf[step.code_point] < 0) {
      out.resize(size_before);
      return false;
    }
    out += static_cast<char>(kBytesOf[step.code_point]);
    pos += step.length;
  }
  return true;
}

}  // namespace mererun
