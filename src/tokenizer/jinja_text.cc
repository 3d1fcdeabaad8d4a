#include "tokenizer/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace mererun::jinja {
namespace {

template <typename Function>
void for_each_code_point(std::string_view text, Function&& function) {
  for (std::size_t i = 0; i < text.size();) {
    std::int32_t cp = 0;
    const std::size_t length = code_point_length(text, i, &cp);
    function(cp, text.substr(i, length));
    i += length;
  }
}

bool is_letter_category(std::int32_t cp) {
  const auto category = utf8proc_category(cp);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_LO;
}

bool is_cased(std::int32_t cp) { return cp >= 0 && (utf8proc_islower(cp) || utf8proc_isupper(cp)); }

void append_upper(std::string& out, std::int32_t cp, std::string_view bytes) {
  if (cp < 0) {
    out += bytes;
  } else if (cp == 0xDF) {
    out += "SS";  // the one common letter whose capital is two letters; utf8proc maps one to one
  } else {
    append_code_point(out, utf8proc_toupper(cp));
  }
}

void append_lower(std::string& out, std::int32_t cp, std::string_view bytes) {
  if (cp < 0) {
    out += bytes;
  } else {
    append_code_point(out, utf8proc_tolower(cp));
  }
}

void append_title(std::string& out, std::int32_t cp, std::string_view bytes) {
  if (cp < 0) {
    out += bytes;
  } else if (cp == 0xDF) {
    out += "Ss";
  } else {
    append_code_point(out, utf8proc_totitle(cp));
  }
}

bool is_line_end(std::int32_t cp) {
  return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
         cp == 0x2029;
}

/// Start of the code point that ends just before `end`.
std::size_t previous_code_point(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  std::int32_t cp = 0;
  return start + code_point_length(text, start, &cp) == end ? start : end - 1;
}

}  // namespace

std::size_t code_point_length(std::string_view text, std::size_t position, std::int32_t* code_point) {
  const auto lead = static_cast<unsigned char>(text[position]);
  if (lead < 0x80) {
    *code_point = lead;
    return 1;
  }
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position);
  const auto left = static_cast<utf8proc_ssize_t>(std::min<std::size_t>(4, text.size() - position));
  utf8proc_int32_t cp = -1;
  const auto length = utf8proc_iterate(bytes, left, &cp);
  *code_point = length > 0 ? cp : -1;
  return length > 0 ? static_cast<std::size_t>(length) : 1;
}

void append_code_point(std::string& out, std::int32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t count_code_points(std::string_view text) {
  if (is_ascii(text)) return text.size();
  std::size_t count = 0;
  for_each_code_point(text, [&](std::int32_t, std::string_view) { ++count; });
  return count;
}

std::vector<std::size_t> code_point_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (std::size_t i = 0; i < text.size();) {
    offsets.push_back(i);
    std::int32_t cp = 0;
    i += code_point_length(text, i, &cp);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::size_t byte_offset(std::string_view text, std::size_t index) {
  if (is_ascii(text)) return std::min(index, text.size());
  std::size_t i = 0;
  for (; index > 0 && i < text.size(); --index) {
    std::int32_t cp = 0;
    i += code_point_length(text, i, &cp);
  }
  return i;
}

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* at = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (at == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

bool is_space(std::int32_t cp) {
  return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
         cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
         cp == 0x205F || cp == 0x3000;
}

std::size_t skip_space(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    std::int32_t cp = 0;
    const std::size_t length = code_point_length(text, position, &cp);
    if (!is_space(cp)) break;
    position += length;
  }
  return position;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  const auto drop = [&](std::size_t at, std::size_t length, std::int32_t cp) {
    if (!characters) return is_space(cp);
    const std::string_view wanted = text.substr(at, length);
    for (std::size_t i = 0; i < characters->size();) {
      std::int32_t ignored = 0;
      const std::size_t n = code_point_length(*characters, i, &ignored);
      if (characters->substr(i, n) == wanted) return true;
      i += n;
    }
    return false;
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  std::int32_t cp = 0;
  while (side != Side::kRight && begin < end) {
    const std::size_t length = code_point_length(text, begin, &cp);
    if (!drop(begin, length, cp)) break;
    begin += length;
  }
  while (side != Side::kLeft && end > begin) {
    const std::size_t start = previous_code_point(text, end);
    const std::size_t length = code_point_length(text, start, &cp);
    if (!drop(start, length, cp)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t limit) {
  std::vector<std::string_view> parts;
  if (separator) {
    std::size_t start = 0;
    for (; limit != 0; --limit) {
      const std::size_t at = find_text(text, *separator, start);
      if (at == std::string_view::npos) break;
      parts.push_back(text.substr(start, at - start));
      start = at + separator->size();
    }
    parts.push_back(text.substr(start));
    return parts;
  }
  std::size_t start = skip_space(text, 0);
  while (start < text.size()) {
    if (limit-- == 0) {  // the rest keeps its white space, at its end too
      parts.push_back(text.substr(start));
      break;
    }
    std::size_t end = start;
    while (end < text.size()) {
      std::int32_t cp = 0;
      const std::size_t length = code_point_length(text, end, &cp);
      if (is_space(cp)) break;
      end += length;
    }
    parts.push_back(text.substr(start, end - start));
    start = skip_space(text, end);
  }
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          std::int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = text;
  if (!separator) rest = strip(rest, Side::kRight);
  for (; limit != 0 && (separator || !rest.empty()); --limit) {
    std::size_t begin = 0;  // of the piece after the separator
    std::size_t end = 0;    // of what stays before it
    if (separator) {
      const std::size_t at = rest.rfind(*separator);
      if (at == std::string_view::npos) break;
      begin = at + separator->size();
      end = at;
    } else {
      begin = rest.size();
      std::int32_t cp = 0;
      while (begin > 0) {
        const std::size_t previous = previous_code_point(rest, begin);
        code_point_length(rest, previous, &cp);
        if (is_space(cp)) break;
        begin = previous;
      }
      end = strip(rest.substr(0, begin), Side::kRight).size();
    }
    parts.push_back(rest.substr(begin));
    rest = rest.substr(0, end);
  }
  if (separator || !strip(rest, Side::kLeft).empty()) parts.push_back(rest);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::int32_t cp = 0;
    std::size_t next = i + code_point_length(text, i, &cp);
    if (is_line_end(cp)) {
      if (cp == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(start, (keep_ends ? next : i) - start));
      start = next;
    }
    i = next;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) { append_upper(out, cp, bytes); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) { append_lower(out, cp, bytes); });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) {
    if (out.empty()) {
      append_title(out, cp, bytes);
    } else {
      append_lower(out, cp, bytes);
    }
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) {
    if (in_word) {
      append_lower(out, cp, bytes);
    } else {
      append_title(out, cp, bytes);
    }
    in_word = is_cased(cp);
  });
  return out;
}

std::string title_words(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) {
    const bool is_break = is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
    if (in_word) {
      append_lower(out, cp, bytes);
    } else {
      append_upper(out, cp, bytes);
    }
    in_word = !is_break;
  });
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view bytes) {
    if (cp >= 0 && utf8proc_isupper(cp)) {
      append_lower(out, cp, bytes);
    } else {
      append_upper(out, cp, bytes);
    }
  });
  return out;
}

bool is_upper(std::string_view text) {
  bool any = false;
  bool all = true;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view) {
    if (cp < 0) return;
    any = any || utf8proc_isupper(cp);
    all = all && !utf8proc_islower(cp);
  });
  return any && all;
}

bool is_lower(std::string_view text) {
  bool any = false;
  bool all = true;
  for_each_code_point(text, [&](std::int32_t cp, std::string_view) {
    if (cp < 0) return;
    any = any || utf8proc_islower(cp);
    all = all && !utf8proc_isupper(cp);
  });
  return any && all;
}

bool is_word_character(std::int32_t cp) {
  if (cp < 0) return false;
  const auto category = utf8proc_category(cp);
  return cp == '_' || is_letter_category(cp) || category == UTF8PROC_CATEGORY_ND ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool all_in(std::string_view text, CharacterClass character_class) {
  bool all = !text.empty();
  for_each_code_point(text, [&](std::int32_t cp, std::string_view) {
    if (cp < 0) {
      all = false;
      return;
    }
    const auto category = utf8proc_category(cp);
    const bool superscript = cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || (cp >= 0x2070 && cp <= 0x2089);
    switch (character_class) {
      case CharacterClass::kSpace: all = all && is_space(cp); break;
      case CharacterClass::kAlpha: all = all && is_letter_category(cp); break;
      case CharacterClass::kDecimal: all = all && category == UTF8PROC_CATEGORY_ND; break;
      case CharacterClass::kDigit:
        all = all && (category == UTF8PROC_CATEGORY_ND || (category == UTF8PROC_CATEGORY_NO && superscript));
        break;
      case CharacterClass::kNumeric:
        all = all && is_word_character(cp) && cp != '_' && !is_letter_category(cp);
        break;
      case CharacterClass::kAlphanumeric: all = all && is_word_character(cp) && cp != '_'; break;
    }
  });
  return all;
}

bool is_printable(std::int32_t cp) {
  if (cp == ' ') return true;
  switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto scientific = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string_view text(digits, static_cast<std::size_t>(scientific.ptr - digits));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::size_t exponent_start = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + exponent_start, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);  // both pad the exponent to two digits
  char plain[400];
  const auto fixed = std::to_chars(plain, plain + sizeof plain, value, std::chars_format::fixed);
  std::string out(plain, fixed.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace mererun::jinja
