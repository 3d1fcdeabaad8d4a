#include "grammar/gbnf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/code_points.h"
#include "grammar/point_reader.h"
#include "tokenizer/utf8.h"

namespace mererun {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr int kMaxNesting = 200;

bool is_name_character(std::uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfParser final : PointReader {
 public:
  GbnfParser(ExpressionPool& pool, std::string_view text)
      : PointReader(text, "grammar", "grammar"), pool_(pool) {}

  RuleId parse() {
    skip_space();
    while (peek() != kEnd) parse_rule();
    for (const auto& [name, rule] : rules_) {
      if (!pool_.rule_body(rule))
        fail_expected(ErrorCode::kInvalidArgument, "grammar", fmt::format("a rule \"{}\"", name), "none");
    }
    const auto root = rules_.find("root");
    if (root == rules_.end())
      fail_expected(ErrorCode::kInvalidArgument, "grammar", "a rule \"root\"", "none");
    return root->second;
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view got) const override {
    const auto here = points_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, points_.size()));
    const auto line = 1 + std::count(points_.begin(), here, std::uint32_t{'\n'});
    const auto reversed = std::find(std::make_reverse_iterator(here), points_.rend(), std::uint32_t{'\n'});
    const auto column = 1 + (here - reversed.base());
    fail_expected(ErrorCode::kInvalidArgument, fmt::format("grammar: line {}, column {}", line, column),
                  expected, got);
  }
  /// What stands here, for messages.
  std::string found() const {
    return peek() == kEnd ? "the end of the grammar" : fmt::format("\"{}\"", current_text());
  }

  void expect(char c) {
    if (!take(c)) fail(fmt::format("\"{}\"", c), found());
  }

  void skip_space() {
    for (;;) {
      const std::uint32_t c = peek();
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        ++at_;
      } else if (c == '#') {
        while (peek() != '\n' && peek() != kEnd) ++at_;
      } else {
        return;
      }
    }
  }

  std::string parse_name() {
    std::string name;
    while (is_name_character(peek())) name.push_back(static_cast<char>(next()));
    return name;
  }
  RuleId rule_named(const std::string& name) {
    const auto [at_rule, is_new] = rules_.try_emplace(name, 0);
    if (is_new) at_rule->second = pool_.add_rule(name);
    return at_rule->second;
  }
  bool take_definition_sign() {
    if (peek() != ':' || peek(1) != ':' || peek(2) != '=') return false;
    at_ += 3;
    return true;
  }
  /// `name ::=` stands here: what went before is over.
  bool is_at_rule() {
    const std::size_t begin = at_;
    const bool has_name = !parse_name().empty();
    skip_space();
    const bool result = has_name && take_definition_sign();
    at_ = begin;
    return result;
  }

  void parse_rule() {
    const std::size_t begin = at_;
    const std::string name = parse_name();
    if (name.empty()) fail("the name of a rule", found());
    skip_space();
    if (!take_definition_sign()) fail("\"::=\"", found());
    const RuleId rule = rule_named(name);
    if (pool_.rule_body(rule)) {
      at_ = begin;
      fail("each rule once", fmt::format("\"{}\" again", name));
    }
    skip_space();
    pool_.define(rule, parse_alternatives());
    if (peek() != kEnd && !is_at_rule()) fail("a rule, or more of one", found());
  }

  ExpressionId parse_alternatives() {
    std::vector<ExpressionId> options;
    do {
      skip_space();
      std::vector<ExpressionId> parts;
      while (starts_item()) parts.push_back(parse_item());
      options.push_back(pool_.sequence(std::move(parts)));
    } while (take('|'));
    return pool_.choice(std::move(options));
  }

  bool starts_item() {
    const std::uint32_t c = peek();
    if (c == '"' || c == '[' || c == '(' || c == '.') return true;
    return is_name_character(c) && !is_at_rule();
  }

  ExpressionId parse_item() {
    ExpressionId item = parse_atom();
    skip_space();
    for (;;) {
      if (take('*')) {
        item = pool_.repeat(item, 0, std::nullopt);
      } else if (take('+')) {
        item = pool_.repeat(item, 1, std::nullopt);
      } else if (take('?')) {
        item = pool_.repeat(item, 0, 1);
      } else if (take('{')) {
        item = parse_bounds(item);
      } else {
        return item;
      }
      skip_space();
    }
  }

  ExpressionId parse_atom() {
    const std::uint32_t c = peek();
    if (c == '"') return parse_literal();
    if (take('[')) return pool_.character(parse_class());
    if (take('.')) return pool_.character(CodePointSet::all());
    if (take('(')) {
      if (++nesting_ > kMaxNesting) fail(fmt::format("at most {} nested groups", kMaxNesting), "more");
      const ExpressionId body = parse_alternatives();
      skip_space();
      expect(')');
      --nesting_;
      return body;
    }
    return pool_.rule(rule_named(parse_name()));
  }

  int parse_number() {
    if (!is_at_digit()) fail("a number", found());
    const std::int64_t value = take_number(ExpressionPool::kMaxCount);
    if (value > ExpressionPool::kMaxCount)
      fail(fmt::format("at most {}", ExpressionPool::kMaxCount), "a larger number");
    return static_cast<int>(value);
  }

  ExpressionId parse_bounds(ExpressionId body) {
    skip_space();
    const int min = parse_number();
    std::optional<int> max = min;
    skip_space();
    if (take(',')) {
      skip_space();
      max.reset();
      if (peek() != '}') max = parse_number();
      skip_space();
    }
    expect('}');
    if (max && *max < min) fail("min <= max", fmt::format("{{{},{}}}", min, *max));
    return pool_.repeat(body, min, max);
  }

  ExpressionId parse_literal() {
    expect('"');
    std::string bytes;
    while (!take('"')) append_utf8(static_cast<char32_t>(parse_character()), bytes);
    return pool_.bytes(bytes);
  }

  CodePointSet parse_class() {
    const bool is_negated = take('^');
    std::vector<CodePointRange> ranges;
    while (!take(']')) {
      const std::uint32_t first = parse_character();
      std::uint32_t last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        last = parse_character();
        if (last < first) fail("a range in ascending order", "another");
      }
      ranges.push_back({first, last});
    }
    const CodePointSet set(std::move(ranges));
    return is_negated ? set.complement() : set;
  }

  std::uint32_t parse_code(int digits) {
    const std::uint32_t value = hex(digits);
    if (!CodePointSet::all().contains(value)) fail("the number of a character", fmt::format("{:X}", value));
    return value;
  }

  std::uint32_t parse_character() {
    const std::uint32_t c = next();
    if (c != '\\') return c;
    const std::uint32_t escaped = next();
    switch (escaped) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return parse_code(2);
      case 'u': return parse_code(4);
      case 'U': return parse_code(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^': return escaped;
      default: --at_; fail("an escape", found());
    }
  }

  ExpressionPool& pool_;
  int nesting_ = 0;
  std::map<std::string, RuleId> rules_;
};

}  // namespace

RuleId parse_gbnf(ExpressionPool& pool, std::string_view text) {
  if (text.size() > kMaxBytes) {
    fail_expected(ErrorCode::kInvalidArgument, "grammar", fmt::format("at most {} bytes", kMaxBytes),
                  fmt::format("{}", text.size()));
  }
  return GbnfParser(pool, text).parse();
}

}  // namespace mererun
