#include "grammar/code_points.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace mererun {

CodePointSet::CodePointSet(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> valid;
  for (const auto& [first, last] : ranges) {
    // Around the surrogates.
    if (first < 0xD800) valid.push_back({first, std::min<std::uint32_t>(last, 0xD7FF)});
    if (last > 0xDFFF) valid.push_back({std::max<std::uint32_t>(first, 0xE000), std::min(last, kLast)});
  }
  std::erase_if(valid, [](const CodePointRange& range) { return range.first > range.last; });
  std::sort(valid.begin(), valid.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  for (const CodePointRange& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
  }
}

bool CodePointSet::contains(std::uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CodePointRange& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<CodePointRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(ranges));
}

CodePointSet CodePointSet::complement() const {
  std::vector<CodePointRange> gaps;
  std::uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) gaps.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CodePointSet(std::move(gaps));
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  std::vector<CodePointRange> both;
  for (const CodePointRange& a : ranges_) {
    for (const CodePointRange& b : other.ranges_) {
      const std::uint32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
      if (first <= last) both.push_back({first, last});
    }
  }
  return CodePointSet(std::move(both));
}

namespace {

constexpr std::uint32_t kLastOfSize[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

/// Encodings of [first, last], both `size` bytes long and alike but for their last `free` continuation bytes,
/// or cut until they are.
void add_sequences(std::uint32_t first, std::uint32_t last, int size, std::vector<Utf8Sequence>& out) {
  for (int k = 1; k < size; ++k) {
    // Cut where the bytes above the last k differ and the part below is not whole.
    const std::uint32_t low = (std::uint32_t{1} << (6 * k)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      add_sequences(first, first | low, size, out);
      add_sequences((first | low) + 1, last, size, out);
      return;
    }
    if ((last & low) != low) {
      add_sequences(first, (last & ~low) - 1, size, out);
      add_sequences(last & ~low, last, size, out);
      return;
    }
  }
  constexpr std::uint8_t kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
  Utf8Sequence sequence{.bytes = {}, .size = size};
  for (int i = 0; i < size; ++i) {
    const int shift = 6 * (size - 1 - i);
    const std::uint32_t mask = i == 0 ? 0xFF : 0x3F;
    const std::uint8_t lead = i == 0 ? kLead[size - 1] : std::uint8_t{0x80};
    sequence.bytes[i] = {static_cast<std::uint8_t>(lead | ((first >> shift) & mask)),
                         static_cast<std::uint8_t>(lead | ((last >> shift) & mask))};
  }
  out.push_back(sequence);
}

}  // namespace

std::vector<Utf8Sequence> utf8_sequences(const CodePointSet& set) {
  std::vector<Utf8Sequence> out;
  for (auto [first, last] : set.ranges()) {
    for (int size = 1; size <= 4 && first <= last; ++size) {
      const std::uint32_t end = kLastOfSize[size - 1];
      if (first > end) continue;
      add_sequences(first, std::min(last, end), size, out);
      first = end + 1;
    }
  }
  return out;
}

std::vector<std::uint32_t> code_points_of(std::string_view text, std::string_view where) {
  if (valid_utf8_prefix(text) != text.size())
    fail_expected(ErrorCode::kInvalidArgument, where, "well-formed UTF-8", "other bytes");
  std::vector<std::uint32_t> points;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    points.push_back(step.code_point);
    i += step.length;
  }
  return points;
}

}  // namespace mererun
