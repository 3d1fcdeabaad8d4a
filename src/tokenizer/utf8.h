#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mererun {

/// What stands at one place of a byte string that should be UTF-8.
enum class Utf8Kind {
  kValid,       // a whole, well-formed character
  kIllFormed,   // a maximal ill-formed subpart: no continuation can repair it
  kIncomplete,  // the well-formed start of a character, cut off by the end of the text
};

/// One character, or one maximal ill-formed subpart, of a byte string.
struct Utf8Step {
  Utf8Kind kind;
  std::uint32_t length;  // bytes, 1..4
  char32_t code_point;   // U+FFFD unless kind is kValid
};

/// The step that starts at byte `pos`; pos < text.size().
///
/// Source: The Unicode Standard 15, table 3-7 (well-formed byte sequences) and 3.9 "U+FFFD Substitution of
/// Maximal Subparts".
Utf8Step utf8_step(std::string_view text, std::size_t pos);

/// Length in bytes of the longest well-formed prefix.
std::size_t valid_utf8_prefix(std::string_view text);

/// Appends `code_point` (a Unicode scalar value) to `out`.
void append_utf8(char32_t code_point, std::string& out);

/// Appends `text` to `out` with U+FFFD for every maximal ill-formed subpart, a cut-off tail included.
void append_lossy_utf8(std::string_view text, std::string& out);

}  // namespace mererun
