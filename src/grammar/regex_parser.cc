#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/code_points.h"
#include "grammar/point_reader.h"

namespace mererun {
namespace {

constexpr int kMaxNesting = 200;

const CodePointSet& digits() {
  static const CodePointSet kSet({{'0', '9'}});
  return kSet;
}
const CodePointSet& word_characters() {
  static const CodePointSet kSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return kSet;
}
/// White space and line ends of ECMA-262.
const CodePointSet& spaces() {
  static const CodePointSet kSet({{0x09, 0x0D},
                                  {0x20, 0x20},
                                  {0xA0, 0xA0},
                                  {0x1680, 0x1680},
                                  {0x2000, 0x200A},
                                  {0x2028, 0x2029},
                                  {0x202F, 0x202F},
                                  {0x205F, 0x205F},
                                  {0x3000, 0x3000},
                                  {0xFEFF, 0xFEFF}});
  return kSet;
}
const CodePointSet& line_ends() {
  static const CodePointSet kSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return kSet;
}

class PatternParser final : PointReader {
 public:
  PatternParser(ExpressionPool& pool, std::string_view pattern, CharacterEncoding encoding,
                const CodePointSet& alphabet, std::string_view where)
      : PointReader(pattern, where, "pattern"),
        pool_(pool),
        encoding_(encoding),
        alphabet_(alphabet),
        where_(where) {}

  ExpressionId parse() {
    std::vector<ExpressionId> options;
    do {
      const bool is_anchored = take('^');
      std::vector<ExpressionId> parts;
      if (!is_anchored) parts.push_back(anything());
      parse_terms(parts);
      if (!take('$')) parts.push_back(anything());
      options.push_back(pool_.sequence(std::move(parts)));
    } while (take('|'));
    if (at_ < points_.size()) fail("the end", fmt::format("\"{}\"", current_text()));
    return pool_.choice(std::move(options));
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view got) const override {
    fail_expected(ErrorCode::kInvalidArgument, fmt::format("{}: character {}", where_, at_), expected, got);
  }

  ExpressionId set(const CodePointSet& characters) {
    return pool_.character(characters.intersected(alphabet_), encoding_);
  }
  ExpressionId anything() { return pool_.repeat(set(CodePointSet::all()), 0, std::nullopt); }

  ExpressionId parse_group_body() {
    std::vector<ExpressionId> options;
    do {
      std::vector<ExpressionId> parts;
      parse_terms(parts);
      options.push_back(pool_.sequence(std::move(parts)));
    } while (take('|'));
    return pool_.choice(std::move(options));
  }

  void parse_terms(std::vector<ExpressionId>& parts) {
    for (;;) {
      const std::uint32_t c = peek();
      if (c == kEnd || c == '|' || c == ')') return;
      if (c == '$') {
        const std::uint32_t after = peek(1);
        if (nesting_ == 0 && (after == kEnd || after == '|')) return;
        fail("anchors only at the ends of the whole pattern", "$ inside");
      }
      if (c == '^') fail("anchors only at the ends of the whole pattern", "^ inside");
      parts.push_back(parse_quantifiers(parse_atom()));
    }
  }

  ExpressionId parse_atom() {
    const std::uint32_t c = next();
    switch (c) {
      case '(': return parse_group();
      case '[': return set(parse_class());
      case '.': return set(line_ends().complement());
      case '\\': return set(parse_escape(false));
      case '*':
      case '+':
      case '?': --at_; fail("something to repeat", current_text());
      case '{': {
        std::optional<int> max;
        const std::size_t begin = at_--;
        if (parse_bounds(max)) {
          at_ = begin - 1;
          fail("something to repeat", "{");
        }
        at_ = begin;
        return set(CodePointSet::one(c));
      }
      default: return set(CodePointSet::one(c));
    }
  }

  ExpressionId parse_group() {
    if (++nesting_ > kMaxNesting) fail(fmt::format("at most {} nested groups", kMaxNesting), "more");
    if (take('?')) {
      const bool is_name = peek() == '<' && peek(1) != '=' && peek(1) != '!';
      if (is_name) {
        while (next() != '>') {
        }
      } else if (!take(':')) {
        fail("a plain group", fmt::format("(?{}", current_text()));
      }
    }
    const ExpressionId body = parse_group_body();
    if (!take(')')) fail(")", "the end of the pattern");
    --nesting_;
    return body;
  }

  /// {m}, {m,} or {m,n}; otherwise takes nothing.
  std::optional<int> parse_bounds(std::optional<int>& max) {
    const std::size_t begin = at_;
    const auto number = [&]() -> std::optional<int> {
      if (!is_at_digit()) return std::nullopt;
      const std::int64_t value = take_number(ExpressionPool::kMaxCount);
      if (value > ExpressionPool::kMaxCount)
        fail(fmt::format("at most {}", ExpressionPool::kMaxCount), "more");
      return static_cast<int>(value);
    };
    if (take('{')) {
      if (const auto min = number()) {
        max = min;
        if (take(',')) max = number();
        if (take('}')) return min;
      }
    }
    at_ = begin;
    return std::nullopt;
  }

  ExpressionId parse_quantifiers(ExpressionId body) {
    std::optional<int> max;
    if (take('*')) {
      body = pool_.repeat(body, 0, std::nullopt);
    } else if (take('+')) {
      body = pool_.repeat(body, 1, std::nullopt);
    } else if (take('?')) {
      body = pool_.repeat(body, 0, 1);
    } else if (const auto min = parse_bounds(max)) {
      if (max && *max < *min) fail("min <= max", fmt::format("{{{},{}}}", *min, *max));
      body = pool_.repeat(body, *min, max);
    } else {
      return body;
    }
    take('?');  // lazy: finds another match first, matches the same texts
    return body;
  }

  CodePointSet parse_escape(bool in_class) {
    const std::uint32_t c = next();
    switch (c) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return word_characters();
      case 'W': return word_characters().complement();
      case 's': return spaces();
      case 'S': return spaces().complement();
      case 't': return CodePointSet::one('\t');
      case 'n': return CodePointSet::one('\n');
      case 'r': return CodePointSet::one('\r');
      case 'f': return CodePointSet::one('\f');
      case 'v': return CodePointSet::one('\v');
      case 'b':
        if (in_class) return CodePointSet::one('\b');
        break;
      case '0':
        if (!is_at_digit()) return CodePointSet::one(0);
        break;
      case 'x': return CodePointSet::one(hex(2));
      case 'u': return CodePointSet::one(parse_unicode_escape());
      default: {
        const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
        if (!is_letter && !(c >= '0' && c <= '9')) return CodePointSet::one(c);
      }
    }
    --at_;
    fail("an escape of a character or class", fmt::format("\\{}", current_text()));
  }

  std::uint32_t parse_unicode_escape() {
    if (take('{')) {
      std::uint32_t value = 0;
      while (peek() != '}') {
        value = value * 16 + hex(1);
        if (value > CodePointSet::kLast) fail("a code point", "more than 10FFFF");
      }
      ++at_;
      return value;
    }
    const std::uint32_t unit = hex(4);
    if (unit < 0xD800 || unit > 0xDBFF) return unit;
    if (take('\\') && take('u')) {
      const std::uint32_t low = hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    fail("a whole surrogate pair", "half of one");
  }

  CodePointSet parse_class() {
    const bool is_negated = take('^');
    std::vector<CodePointRange> ranges;
    CodePointSet result;
    while (!take(']')) {
      bool is_set = false;
      const CodePointSet first = class_member(is_set);
      if (!is_set && peek() == '-' && peek(1) != ']' && peek(1) != kEnd) {
        ++at_;
        bool is_last_set = false;
        const CodePointSet last = class_member(is_last_set);
        if (is_last_set || first.empty() || last.empty() ||
            last.ranges().front().first < first.ranges().front().first)
          fail("a range of characters in ascending order", "another");
        ranges.push_back({first.ranges().front().first, last.ranges().front().first});
      } else {
        result = result.united(first);
      }
    }
    result = result.united(CodePointSet(std::move(ranges)));
    return is_negated ? result.complement() : result;
  }

  /// One character, or a named set.
  CodePointSet class_member(bool& is_set) {
    const std::uint32_t c = next();
    if (c != '\\') return CodePointSet::one(c);
    const std::uint32_t letter = peek();
    for (const char name : std::string_view("dDwWsS"))
      is_set = is_set || letter == static_cast<std::uint32_t>(name);
    if (letter == '-') {
      ++at_;
      return CodePointSet::one('-');
    }
    return parse_escape(true);
  }

  ExpressionPool& pool_;
  int nesting_ = 0;
  CharacterEncoding encoding_;
  const CodePointSet& alphabet_;
  std::string_view where_;
};

}  // namespace

ExpressionId parse_pattern(ExpressionPool& pool, std::string_view pattern, CharacterEncoding encoding,
                           const CodePointSet& alphabet, std::string_view where) {
  return PatternParser(pool, pattern, encoding, alphabet, where).parse();
}

}  // namespace mererun
