#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace mererun {

namespace {

// No character from here on decomposes or combines (Unicode 15); those that might one day take the slow path.
constexpr char32_t kTableEnd = 0x30000;

/// The longest canonical decomposition of one character has 4 code points; 8 leaves room for later versions.
using Decomposition = std::array<utf8proc_int32_t, 8>;

std::size_t decompose(char32_t code_point, Decomposition& out) {
  int boundary = 0;
  const utf8proc_ssize_t n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), out.data(),
                              static_cast<utf8proc_ssize_t>(out.size()), UTF8PROC_DECOMPOSE, &boundary);
  MERERUN_CHECK(n >= 1 && n <= static_cast<utf8proc_ssize_t>(out.size()), "canonical decomposition");
  return static_cast<std::size_t>(n);
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Characters at which a text may be cut: starters that equal their own NFC and never combine with what
/// stands before them. A text of such characters only is normalised.
class StableCharacters {
 public:
  StableCharacters() : unstable_(kTableEnd) {
    std::vector<bool> combines_backwards(kTableEnd);
    Decomposition parts;
    for (char32_t c = 0; c < kTableEnd; ++c) {
      const std::size_t n = decompose(c, parts);
      for (std::size_t i = 1; i < n; ++i) {
        if (parts[i] < static_cast<utf8proc_int32_t>(kTableEnd)) combines_backwards[parts[i]] = true;
      }
    }
    for (char32_t c = 0; c < kTableEnd; ++c) {
      const std::size_t n = decompose(c, parts);
      const auto first = static_cast<std::size_t>(parts[0]);
      bool stable = combining_class(static_cast<utf8proc_int32_t>(c)) == 0 && first < kTableEnd &&
                    combining_class(parts[0]) == 0 && !combines_backwards[first] && !combines_backwards[c];
      if (stable && (n > 1 || first != c)) {
        const utf8proc_ssize_t composed =
            utf8proc_normalize_utf32(parts.data(), static_cast<utf8proc_ssize_t>(n),
                                     static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        stable = composed == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
      }
      unstable_[c] = !stable;
    }
  }

  bool contains(char32_t c) const { return c < 0x300 ? !unstable_[c] : c < kTableEnd && !unstable_[c]; }

 private:
  std::vector<bool> unstable_;
};

const StableCharacters& stable_characters() {
  static const StableCharacters table;
  return table;
}

// Appends NFC of `text` to `out`; `code_points` is scratch.
void append_normalized(std::string_view text, std::vector<utf8proc_int32_t>& code_points, std::string& out) {
  code_points.clear();
  Decomposition parts;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    const std::size_t n = decompose(step.code_point, parts);
    code_points.insert(code_points.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(n));
    pos += step.length;
  }
  // Canonical ordering: a stable sort of every run of non-starters. libutf8proc's own ordering is quadratic.
  for (auto run = code_points.begin(); run != code_points.end();) {
    const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
    run = std::find_if_not(run, code_points.end(), is_starter);
    const auto end = std::find_if(run, code_points.end(), is_starter);
    std::stable_sort(run, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    run = end;
  }
  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  MERERUN_CHECK(composed >= 0, "canonical composition");
  for (utf8proc_ssize_t i = 0; i < composed; ++i) append_utf8(static_cast<char32_t>(code_points[i]), out);
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  const auto is_high = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  if (std::none_of(text.begin(), text.end(), is_high)) return text;
  const StableCharacters& stable = stable_characters();
  std::vector<utf8proc_int32_t> code_points;
  std::size_t copied = 0;   // text before this is in storage, once anything is
  std::size_t segment = 0;  // start of the last stable character seen
  bool changed = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (stable.contains(step.code_point)) {
      segment = pos;
      pos += step.length;
      continue;
    }
    // From the stable character before up to the next stable one, nothing outside can interact.
    std::size_t end = pos;
    while (end < text.size()) {
      const Utf8Step next = utf8_step(text, end);
      if (stable.contains(next.code_point)) break;
      end += next.length;
    }
    if (!changed) storage.clear();
    changed = true;
    storage += text.substr(copied, segment - copied);
    append_normalized(text.substr(segment, end - segment), code_points, storage);
    copied = segment = pos = end;
  }
  if (!changed) return text;
  storage += text.substr(copied);
  return storage;
}

}  // namespace mererun
