#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"

namespace mererun {

namespace {

enum class CharClass : std::uint8_t { kOther, kLetter, kMark, kNumber, kSpace, kLineBreak };

CharClass classify(char32_t c) {
  if (c == U'\r' || c == U'\n') return CharClass::kLineBreak;
  const bool white_space = (c >= 0x09 && c <= 0x0C) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
                           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
                           c == 0x205F || c == 0x3000;
  if (white_space) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CharClass::kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::kNumber;
    default: return CharClass::kOther;
  }
}

constexpr std::size_t kFastEnd =
    0x800;  // one- and two-byte characters: Latin, Greek, Cyrillic, Arabic, Hebrew

const std::array<CharClass, kFastEnd>& fast_classes() {
  static const std::array<CharClass, kFastEnd> table = [] {
    std::array<CharClass, kFastEnd> t{};
    for (char32_t c = 0; c < kFastEnd; ++c) t[c] = classify(c);
    return t;
  }();
  return table;
}

/// One pass over a text; the members mirror the alternatives of kQwenPattern.
class QwenScanner {
 public:
  explicit QwenScanner(std::string_view text) : text_(text), fast_(fast_classes()) {}

  /// End of the piece that starts at `pos` < text.size().
  std::size_t piece_end(std::size_t pos) const {
    const Char first = at(pos);
    if (text_[pos] == '\'') {
      if (const std::size_t length = contraction(pos + 1)) return pos + 1 + length;
    }
    // [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ : a mark may fill the optional place or begin the run; the piece is the
    // same.
    if (is_word(first)) return skip_word(first.end);
    if (first.kind == CharClass::kNumber) return first.end;
    const bool line_break = first.kind == CharClass::kLineBreak;
    const Char second = at(first.end);
    if (!line_break && is_word(second)) return skip_word(second.end);
    if (first.kind == CharClass::kOther) return symbols_end(first.end);
    if (text_[pos] == ' ' && second.kind == CharClass::kOther && second.end > first.end) {
      return symbols_end(second.end);
    }
    return white_space_end(pos);
  }

 private:
  struct Char {
    CharClass kind;
    std::size_t end;  // equal to the start at the end of the text
  };

  Char at(std::size_t pos) const {
    if (pos >= text_.size()) return {CharClass::kOther, pos};
    const auto byte = static_cast<unsigned char>(text_[pos]);
    if (byte < 0x80) return {fast_[byte], pos + 1};
    const Utf8Step step = utf8_step(text_, pos);
    return {step.code_point < kFastEnd ? fast_[step.code_point] : classify(step.code_point),
            pos + step.length};
  }

  static bool is_word(Char c) { return c.kind == CharClass::kLetter || c.kind == CharClass::kMark; }

  std::size_t skip_word(std::size_t pos) const {
    for (Char c = at(pos); is_word(c); c = at(pos)) pos = c.end;
    return pos;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d) after the apostrophe: length of the match, 0 if none.
  std::size_t contraction(std::size_t pos) const {
    const auto lower = [&](std::size_t i) {
      return i < text_.size() ? static_cast<char>(text_[i] | 0x20) : '\0';
    };
    const char a = lower(pos);
    const char b = lower(pos + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
    if ((a == 'r' || a == 'v') && b == 'e') return 2;
    if (a == 'l' && b == 'l') return 2;
    // U+017F (long s) folds to s.
    return text_.substr(pos, 2) == "\xC5\xBF" ? 2 : 0;
  }

  // [^\s\p{L}\p{M}\p{N}]+[\r\n]* from `pos` on, its first character already taken.
  std::size_t symbols_end(std::size_t pos) const {
    for (Char c = at(pos); c.kind == CharClass::kOther && c.end > pos; c = at(pos)) pos = c.end;
    while (pos < text_.size() && (text_[pos] == '\r' || text_[pos] == '\n')) ++pos;
    return pos;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+ : through the last line break of the run; else all of it at the end of the text;
  // else all but its last character, so that one space stays with the next word.
  std::size_t white_space_end(std::size_t begin) const {
    std::size_t pos = begin;
    std::size_t last = begin;         // start of the run's last character
    std::size_t after_break = begin;  // end of the last line break
    for (Char c = at(pos); c.kind == CharClass::kSpace || c.kind == CharClass::kLineBreak; c = at(pos)) {
      last = pos;
      pos = c.end;
      if (c.kind == CharClass::kLineBreak) after_break = pos;
    }
    if (after_break > begin) return after_break;
    return pos == text_.size() || last == begin ? pos : last;
  }

  std::string_view text_;
  const std::array<CharClass, kFastEnd>& fast_;
};

class QwenPreTokenizer final : public PreTokenizer {
 public:
  void split(std::string_view text, std::vector<std::size_t>& ends) const override {
    const QwenScanner scanner(text);
    for (std::size_t pos = 0; pos < text.size();) ends.push_back(pos = scanner.piece_end(pos));
  }
};

}  // namespace

std::unique_ptr<const PreTokenizer> make_qwen_pre_tokenizer() { return std::make_unique<QwenPreTokenizer>(); }

}  // namespace mererun
