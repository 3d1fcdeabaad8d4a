#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <array>
#include <new>

#include "base/error.h"
#include "tokenizer/pre_tokenizer.h"

namespace mererun {

namespace {

// White_Space of Unicode 15, as the inside of a class.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Rewrites a pattern written for Oniguruma so that PCRE2 reads it alike; refuses what it cannot vouch for.
class PatternTranslator {
 public:
  PatternTranslator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string translate() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_member(c);
      } else {
        outside_class(c);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view construct) const {
    fail_expected(ErrorCode::kUnsupported, where_, "a pattern that PCRE2 and Oniguruma read alike",
                  fmt::format("{} at byte {} of \"{}\"", construct, pos_, in_));
  }

  char peek(std::size_t distance) const { return pos_ + distance < in_.size() ? in_[pos_ + distance] : '\0'; }

  void copy(std::size_t bytes) {
    out_ += in_.substr(pos_, bytes);
    pos_ += bytes;
  }

  void escape() {
    const char c = peek(1);
    if (c == 's' || c == 'S') {
      // PCRE2's own \s also holds U+180E, so \S inside a class needs that character back.
      if (in_class_) {
        out_ += c == 's' ? std::string(kWhiteSpace) : R"(\S\x{180e})";
      } else {
        out_ += fmt::format("[{}{}]", c == 'S' ? "^" : "", kWhiteSpace);
      }
      pos_ += 2;
    } else if (c == 'p' || c == 'P') {
      const std::size_t close = in_.find('}', pos_);
      if (peek(2) != '{' || close == std::string_view::npos) refuse("a property without braces");
      copy(close + 1 - pos_);
    } else if (std::string_view("dDrntf").find(c) != std::string_view::npos ||
               std::string_view(R"(\.[]{}()*+?|^$-/'"!#&~<>,:;=@_%` )").find(c) != std::string_view::npos) {
      copy(2);
    } else {
      refuse("an escape");
    }
  }

  // Capturing and (?: groups, lookahead, atomic groups, and case folding alone: other flags differ in
  // meaning.
  bool is_shared_group() const {
    if (peek(1) == '*') return false;
    if (peek(1) != '?') return true;
    if (peek(2) == 'i') return peek(3) == ':' || peek(3) == ')';
    return peek(2) == ':' || peek(2) == '!' || peek(2) == '=' || peek(2) == '>';
  }

  void class_member(char c) {
    if (c == '[') refuse("a nested class");
    if (c == '&' && peek(1) == '&') refuse("a class intersection");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void outside_class(char c) {
    if (c == '^' || c == '$' || c == '.') refuse("an anchor or dot");
    if (c == '(' && !is_shared_group()) refuse("a group");
    // {,n} is literal text to PCRE2, and {n}+ possessive.
    if ((c == '{' && peek(1) == ',') || (c == '}' && peek(1) == '+')) refuse("a quantifier");
    if (c == '[') {
      in_class_ = true;
      const std::size_t head = peek(1) == '^' ? 2 : 1;
      if (peek(head) == ']') refuse("a class that begins with a bracket");
      copy(head);
      return;
    }
    copy(1);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t pos_ = 0;
  bool in_class_ = false;
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

struct PcreDeleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

class RegexPreTokenizer final : public PreTokenizer {
 public:
  RegexPreTokenizer(const std::string& pattern, const std::string& where) : where_(where) {
    const std::string translated = PatternTranslator(pattern, where).translate();
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
    if (!code_) {
      fail_expected(ErrorCode::kCorruptData, where, "a regular expression",
                    fmt::format("\"{}\" ({})", pattern, message_of(error)));
    }
    // Without JIT support (some platforms) the interpreter gives the same matches.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  void split(std::string_view text, std::vector<std::size_t>& ends) const override {
    const std::unique_ptr<pcre2_match_data, PcreDeleter> match(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (!match) throw std::bad_alloc();
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    std::size_t done = 0;
    for (std::size_t pos = 0; pos < text.size();) {
      const int found = match_at(text, pos, match.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      // An empty match makes no piece; look again one character later.
      if (bounds[1] == bounds[0]) {
        pos = bounds[1] + 1;
        while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0u) == 0x80) ++pos;
        continue;
      }
      if (bounds[0] > done) ends.push_back(bounds[0]);
      ends.push_back(done = pos = bounds[1]);
    }
    if (done < text.size()) ends.push_back(text.size());
  }

 private:
  int match_at(std::string_view text, std::size_t pos, pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code_.get(), subject, text.size(), pos, PCRE2_NO_UTF_CHECK, match, nullptr);
    // The JIT code has a small fixed stack; the interpreter takes memory from the heap.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_.get(), subject, text.size(), pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match,
                          nullptr);
    }
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      fail_expected(ErrorCode::kUnsupported, where_, "a pattern that can be matched against this text",
                    fmt::format("{} at byte {}", message_of(found), pos));
    }
    return found;
  }

  std::string where_;
  std::unique_ptr<pcre2_code, PcreDeleter> code_;
};

}  // namespace

std::unique_ptr<const PreTokenizer> make_regex_pre_tokenizer(const std::string& pattern,
                                                             const std::string& where) {
  return std::make_unique<RegexPreTokenizer>(pattern, where);
}

}  // namespace mererun
