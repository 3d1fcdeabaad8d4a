#include "grammar/point_reader.h"

#include <fmt/format.h>

#include "grammar/code_points.h"
#include "tokenizer/utf8.h"

namespace mererun {

PointReader::PointReader(std::string_view text, std::string_view where, std::string_view whole)
    : points_(code_points_of(text, where)), whole_(whole) {}

std::uint32_t PointReader::next() {
  if (at_ >= points_.size()) fail("more", "the end of the " + whole_);
  return points_[at_++];
}

bool PointReader::take(char c) {
  if (peek() != static_cast<std::uint32_t>(c)) return false;
  ++at_;
  return true;
}

std::string PointReader::current_text() const {
  std::string text;
  if (at_ < points_.size()) append_utf8(static_cast<char32_t>(points_[at_]), text);
  return text;
}

std::int64_t PointReader::take_number(std::int64_t most) {
  std::int64_t value = 0;
  while (is_at_digit() && value <= most) value = value * 10 + static_cast<int>(next() - '0');
  return value;
}

std::uint32_t PointReader::hex(int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t c = next();
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
    if (!is_digit && !is_letter) fail(fmt::format("{} hexadecimal digits", count), "another character");
    value = value * 16 + (is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

}  // namespace mererun
