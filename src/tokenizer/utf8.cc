#include "tokenizer/utf8.h"

#include <cstring>

namespace mererun {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Bounds of the second byte and length of the character, by lead byte (table 3-7). Length 0: never a lead
// byte.
struct LeadByte {
  std::uint32_t length;
  unsigned char second_min;
  unsigned char second_max;
};

LeadByte lead_byte(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t pos) {
  const auto first = static_cast<unsigned char>(text[pos]);
  if (first < 0x80) return {Utf8Kind::kValid, 1, first};
  const LeadByte lead = lead_byte(first);
  if (lead.length == 0) return {Utf8Kind::kIllFormed, 1, kReplacement};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (std::uint32_t i = 1; i < lead.length; ++i) {
    if (pos + i >= text.size()) return {Utf8Kind::kIncomplete, i, kReplacement};
    const auto byte = static_cast<unsigned char>(text[pos + i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kIllFormed, i, kReplacement};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8Kind::kValid, lead.length, code_point};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t pos = 0;
  while (pos < text.size()) {
    // Eight ASCII bytes at a time: most text is ASCII.
    std::uint64_t word = 0;
    while (pos + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + pos, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      pos += sizeof(word);
    }
    if (pos >= text.size()) break;
    const Utf8Step step = utf8_step(text, pos);
    if (step.kind != Utf8Kind::kValid) return pos;
    pos += step.length;
  }
  return text.size();
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80u | ((code_point >> shift) & 0x3Fu)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0u | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0u | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0u | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void append_lossy_utf8(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return;
    append_utf8(kReplacement, out);
    text.remove_prefix(utf8_step(text, 0).length);
  }
}

}  // namespace mererun
