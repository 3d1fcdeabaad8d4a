#include "tokenizer/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "tokenizer/jinja_text.h"

namespace mererun::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& name) : source_(std::move(source)), name_(name) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) {
      const std::size_t tag = find_tag(position_);
      if (tag == std::string::npos) {
        add_data(std::string_view(source_).substr(position_));
        advance_to(source_.size());
        break;
      }
      read_tag(tag);
    }
    add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(const std::string& message) const { syntax_error(name_, line_, message); }

  char at(std::size_t position) const { return position < source_.size() ? source_[position] : '\0'; }
  bool starts_with(std::string_view text, std::size_t position) const {
    return source_.compare(position, text.size(), text) == 0;
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  void add_data(std::string_view text) {
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  void advance_to(std::size_t position) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    position_ = position;
  }

  /// Ends a tag: white space that lstrip_blocks may drop exists only at the start of a line, so remember
  /// whether the consumed text ended one.
  void finish_tag(std::size_t end) {
    at_line_start_ = end > 0 && source_[end - 1] == '\n';
    advance_to(end);
  }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t i = source_.find('{', from); i != std::string::npos; i = source_.find('{', i + 1)) {
      const char next = at(i + 1);
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return std::string::npos;
  }

  /// The text before a tag, without what the tag's sign ('-', '+' or none) and lstrip_blocks drop.
  std::string_view text_before(std::size_t tag, char sign, bool is_block) const {
    std::string_view text = std::string_view(source_).substr(position_, tag - position_);
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || !is_block) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_start == 0 && !at_line_start_) return text;
    return skip_space(text, line_start) == text.size() ? text.substr(0, line_start) : text;
  }

  void read_tag(std::size_t tag) {
    const char type = source_[tag + 1];
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? source_[tag + 2] : '\0';
    add_data(text_before(tag, sign, type != '{'));
    const std::size_t inside = tag + (sign == '\0' ? 2 : 3);
    if (type == '%') {
      const std::size_t raw = raw_begin_end(inside);
      if (raw != std::string::npos) {
        advance_to(tag);
        finish_tag(raw);
        read_raw();
        return;
      }
    }
    advance_to(inside);
    at_line_start_ = false;
    if (type == '#') {
      read_comment();
    } else {
      add(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
      read_expression(type == '{');
    }
  }

  /// End of "{% raw %}" whose name starts at `position`, or npos when it is another tag.
  std::size_t raw_begin_end(std::size_t position) const {
    position = skip_space(source_, position);
    if (!starts_with("raw", position)) return std::string::npos;
    position = skip_space(source_, position + 3);
    if (starts_with("-%}", position)) return skip_space(source_, position + 3);
    return starts_with("%}", position) ? position + 2 : std::string::npos;
  }

  /// End of the block tag that closes at `position` ("%}", "-%}" or "+%}"), or npos.
  std::size_t block_end(std::size_t position, std::string_view close) const {
    if (at(position) == '+' && starts_with(close, position + 1)) return position + 1 + close.size();
    if (at(position) == '-' && starts_with(close, position + 1)) {
      return skip_space(source_, position + 1 + close.size());
    }
    if (!starts_with(close, position)) return std::string::npos;
    const std::size_t end = position + close.size();
    return at(end) == '\n' ? end + 1 : end;  // trim_blocks
  }

  void read_raw() {
    for (std::size_t i = source_.find("{%", position_); i != std::string::npos;
         i = source_.find("{%", i + 1)) {
      const char sign = at(i + 2) == '-' || at(i + 2) == '+' ? source_[i + 2] : '\0';
      std::size_t inside = skip_space(source_, i + (sign == '\0' ? 2 : 3));
      if (!starts_with("endraw", inside)) continue;
      const std::size_t end = block_end(skip_space(source_, inside + 6), "%}");
      if (end == std::string::npos) continue;
      add_data(text_before(i, sign, true));
      finish_tag(end);
      return;
    }
    error("expected {% endraw %}, got the end of the template");
  }

  void read_comment() {
    const std::size_t close = source_.find("#}", position_);
    if (close == std::string::npos) error("expected #} to end a comment, got the end of the template");
    const bool has_sign = close > position_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    finish_tag(block_end(has_sign ? close - 1 : close, "#}"));
  }

  /// End of the current tag if it closes here, or npos.
  std::size_t tag_end(bool is_variable) const {
    if (!is_variable) return block_end(position_, "%}");
    if (starts_with("-}}", position_)) return skip_space(source_, position_ + 3);
    return starts_with("}}", position_) ? position_ + 2 : std::string::npos;
  }

  void read_expression(bool is_variable) {
    std::string open;  // brackets; inside them "}}" is two operators
    while (true) {
      const std::size_t end = open.empty() ? tag_end(is_variable) : std::string::npos;
      if (end != std::string::npos) {
        add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {});
        finish_tag(end);
        return;
      }
      const std::size_t start = skip_space(source_, position_);
      if (start != position_) {
        advance_to(start);
        continue;
      }
      if (position_ == source_.size()) {
        error(is_variable ? "expected }}, got the end of the template"
                          : "expected %}, got the end of the template");
      }
      const char c = source_[position_];
      if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        std::size_t stop = position_;
        while (is_name_part(at(stop))) ++stop;
        add(TokenKind::kName, source_.substr(position_, stop - position_));
        position_ = stop;
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else {
        read_operator(open);
      }
    }
  }

  void read_operator(std::string& open) {
    static constexpr std::array<std::string_view, 6> kLong = {"**", "//", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view op : kLong) {
      if (starts_with(op, position_)) {
        add(TokenKind::kOperator, std::string(op));
        position_ += 2;
        return;
      }
    }
    const char c = source_[position_];
    if (kShort.find(c) == std::string_view::npos) error(fmt::format("unexpected character '{}'", c));
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : (c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) error(fmt::format("unexpected '{}'", c));
      if (open.back() != c) error(fmt::format("expected '{}', got '{}'", open.back(), c));
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(1, c));
    ++position_;
  }

  /// Digits of `base` with single underscores between them, from `start`; returns the end.
  std::size_t digits_end(std::size_t start, int base) const {
    std::size_t end = start;
    while (digit_value(at(end)) < base ||
           (at(end) == '_' && digit_value(at(end + 1)) < base && end != start)) {
      ++end;
    }
    return end;
  }

  void read_number() {
    const char marker = at(position_ + 1);
    const int base = marker == 'x' || marker == 'X' ? 16 : marker == 'o' || marker == 'O' ? 8 : 2;
    const bool has_prefix = source_[position_] == '0' && marker != '\0' &&
                            std::string_view("xXoObB").find(marker) != std::string::npos;
    if (has_prefix && digits_end(position_ + 2, base) > position_ + 2) {
      add_integer(position_ + 2, digits_end(position_ + 2, base), base);
      return;
    }
    std::size_t end = digits_end(position_, 10);
    bool is_float = false;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (!after_dot && at(end) == '.' && is_digit(at(end + 1))) {
      end = digits_end(end + 1, 10);
      is_float = true;
    }
    if (!after_dot && (at(end) == 'e' || at(end) == 'E')) {
      const std::size_t exponent = at(end + 1) == '+' || at(end + 1) == '-' ? end + 2 : end + 1;
      if (is_digit(at(exponent))) {
        end = digits_end(exponent, 10);
        is_float = true;
      }
    }
    if (is_float) {
      add_float(end);
    } else {
      if (source_[position_] == '0') {  // "007" is a zero followed by nonsense, as in Python
        std::size_t zeros = position_;
        while (at(zeros) == '0' || (at(zeros) == '_' && at(zeros + 1) == '0')) ++zeros;
        if (zeros != end) error("expected a number without leading zeros");
      }
      add_integer(position_, end, 10);
    }
  }

  void add_integer(std::size_t start, std::size_t end, int base) {
    Integer value = 0;
    for (std::size_t i = start; i < end; ++i) {
      if (source_[i] == '_') continue;
      if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Integer>(digit_value(source_[i])), &value)) {
        error("expected an integer of at most 127 bits");
      }
    }
    add(TokenKind::kInteger, source_.substr(position_, end - position_));
    tokens_.back().integer = value;
    position_ = end;
  }

  void add_float(std::size_t end) {
    std::string digits = source_.substr(position_, end - position_);
    add(TokenKind::kFloat, digits);
    std::erase(digits, '_');
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), tokens_.back().number);
    if (result.ec != std::errc{})
      error(fmt::format("expected a number that a double can hold, got {}", digits));
    position_ = end;
  }

  void read_string(char quote) {
    const std::size_t start = position_ + 1;
    std::size_t end = start;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("expected a closing quote, got the end of the template");
    add(TokenKind::kString, unescape(std::string_view(source_).substr(start, end - start)));
    advance_to(end + 1);
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
      } else {
        ++i;  // the string ends with its quote, so a backslash is never last
        i += unescape_one(text, i, out);
      }
    }
    return out;
  }

  /// Resolves the escape whose letter is text[i]; returns how many further bytes it takes.
  std::size_t unescape_one(std::string_view text, std::size_t i, std::string& out) const {
    static constexpr std::string_view kLetters = "nrtabfv\\'\"";
    static constexpr std::string_view kMeanings = "\n\r\t\a\b\f\v\\'\"";
    const char c = text[i];
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
      return 0;
    }
    if (c == '\n') return 0;
    if (c >= '0' && c <= '7') {
      std::size_t length = 1;
      while (length < 3 && i + length < text.size() && digit_value(text[i + length]) < 8) ++length;
      append_code_point(out, static_cast<std::int32_t>(code_unit(text.substr(i, length), 8)));
      return length - 1;
    }
    if (c == 'x') return hex_escape(text, i, 2, out);
    if (c == 'u') return hex_escape(text, i, 4, out);
    if (c == 'U') return hex_escape(text, i, 8, out);
    if (c == 'N') error("expected an escape by number, got \\N");
    out += '\\';
    out += c;
    return 0;
  }

  static std::uint32_t code_unit(std::string_view digits, std::uint32_t base) {
    std::uint32_t value = 0;
    for (const char c : digits) value = value * base + static_cast<std::uint32_t>(digit_value(c));
    return value;
  }

  std::uint32_t hex_digits(std::string_view text, std::size_t start, std::size_t count) const {
    const std::string_view digits = text.substr(std::min(start, text.size()), count);
    const bool valid = digits.size() == count &&
                       std::all_of(digits.begin(), digits.end(), [](char c) { return digit_value(c) < 16; });
    if (!valid) error(fmt::format("expected {} hexadecimal digits in an escape", count));
    return code_unit(digits, 16);
  }

  std::size_t hex_escape(std::string_view text, std::size_t i, std::size_t count, std::string& out) const {
    std::uint32_t cp = hex_digits(text, i + 1, count);
    std::size_t used = count;
    if (cp >= 0xD800 && cp < 0xDC00 && text.substr(std::min(i + 1 + count, text.size()), 2) == "\\u") {
      const std::uint32_t low = hex_digits(text, i + count + 3, 4);
      if (low >= 0xDC00 && low < 0xE000) {
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        used += 6;
      }
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) error("expected an escape of a Unicode character");
    append_code_point(out, static_cast<std::int32_t>(cp));
    return used;
  }

  const std::string source_;
  const std::string& name_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

void syntax_error(const std::string& name, int line, const std::string& message) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}:{}: {}", name, line, message));
}

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  return Lexer(normalize_newlines(source), name).run();
}

}  // namespace mererun::jinja
