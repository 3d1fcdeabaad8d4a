#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Python's string operations on UTF-8. Positions count code points; a byte that is not valid UTF-8 counts as
/// one.
namespace mererun::jinja {

/// Bytes of the code point at `position`, which must be inside `text`; its value goes to *code_point (-1 if
/// invalid).
std::size_t code_point_length(std::string_view text, std::size_t position, std::int32_t* code_point);
void append_code_point(std::string& out, std::int32_t code_point);

bool is_ascii(std::string_view text);
std::size_t count_code_points(std::string_view text);
/// Byte offset of every code point, plus the end.
std::vector<std::size_t> code_point_offsets(std::string_view text);
/// Byte offset of the code point with that index; the end if there are fewer.
std::size_t byte_offset(std::string_view text, std::size_t index);

/// Byte offset of the first `needle` at or after byte `from`, or npos. Linear time, unlike string_view::find.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from = 0);

/// str.isspace() of one code point.
bool is_space(std::int32_t code_point);
std::size_t skip_space(std::string_view text, std::size_t position);

enum class Side { kLeft, kRight, kBoth };
/// str.strip(): white space, or the code points in `characters`.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters = {});

/// str.split() on white space (no separator) or on a non-empty separator; negative limit: no limit.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t limit);
std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          std::int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
/// str.title(): a capital after anything that is not a letter.
std::string title(std::string_view text);
/// The filter `title`: a capital at the start and after white space, '-' and opening brackets.
std::string title_words(std::string_view text);
std::string swap_case(std::string_view text);

bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
enum class CharacterClass { kAlpha, kDecimal, kDigit, kNumeric, kAlphanumeric, kSpace };
/// True if the text is not empty and every code point belongs to the class.
bool all_in(std::string_view text, CharacterClass character_class);
bool is_word_character(std::int32_t code_point);  // \w of Python's re
bool is_printable(std::int32_t code_point);

/// markupsafe.escape(): & < > ' " become entities.
std::string escape_html(std::string_view text);

/// repr() of a float: the shortest digits that read back the same.
std::string float_text(double value);

}  // namespace mererun::jinja
