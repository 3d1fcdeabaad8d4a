#include "grammar/json_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "grammar/code_points.h"

namespace mererun {
namespace {
constexpr std::size_t kMaxNameBytes = 1000;
}

ExpressionId JsonGrammar::space() {
  if (!space_) {
    const ExpressionId blank = pool_.character(CodePointSet({{'\t', '\t'}, {' ', ' '}}));
    space_ = pool_.choice(
        {pool_.empty(), pool_.bytes(" "), pool_.sequence({pool_.bytes("\n"), pool_.repeat(blank, 0, 32)})});
  }
  return *space_;
}

ExpressionId JsonGrammar::colon() {
  return pool_.sequence({pool_.bytes(":"), pool_.optional(pool_.bytes(" "))});
}

ExpressionId JsonGrammar::any_character() {
  return pool_.character({}, markup_ == MarkupText::kAllowed ? CharacterEncoding::kJsonFree
                                                             : CharacterEncoding::kJsonFreeEscapingMarkup);
}

ExpressionId JsonGrammar::string(int min, std::optional<int> max) {
  return pool_.sequence({pool_.bytes("\""), pool_.repeat(any_character(), min, max), pool_.bytes("\"")});
}

ExpressionId JsonGrammar::string_except(const std::vector<std::string>& names) {
  std::vector<std::u32string> points;
  for (const std::string& name : names) {
    if (name.size() > kMaxNameBytes)
      fail_expected(ErrorCode::kInvalidArgument, "property name beside additionalProperties",
                    fmt::format("at most {} bytes", kMaxNameBytes), fmt::format("{}", name.size()));
    std::u32string text;
    for (const std::uint32_t point : code_points_of(name, "property name")) text.push_back(point);
    points.push_back(std::move(text));
  }
  return pool_.sequence({pool_.bytes("\""), except(points, 0), pool_.bytes("\"")});
}

/// What may follow the first `depth` characters, which all of `names` share.
ExpressionId JsonGrammar::except(const std::vector<std::u32string>& names, std::size_t depth) {
  const ExpressionId any = any_character();
  if (names.empty()) return pool_.repeat(any, 0, std::nullopt);
  std::map<char32_t, std::vector<std::u32string>> longer;
  bool is_name = false;
  std::vector<CodePointRange> next;
  for (const std::u32string& name : names) {
    if (name.size() == depth) {
      is_name = true;
      continue;
    }
    longer[name[depth]].push_back(name);
    next.push_back({name[depth], name[depth]});
  }
  std::vector<ExpressionId> options;
  if (!is_name) options.push_back(pool_.empty());
  CodePointSet plain = CodePointSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();
  if (markup_ == MarkupText::kEscaped) plain = plain.without(CodePointSet::one('<'));
  options.push_back(pool_.sequence(
      {pool_.character(plain.without(CodePointSet(std::move(next)))), pool_.repeat(any, 0, std::nullopt)}));
  for (const auto& [point, rest] : longer) {
    options.push_back(pool_.sequence(
        {pool_.character(CodePointSet::one(point), CharacterEncoding::kJson), except(rest, depth + 1)}));
  }
  return pool_.choice(std::move(options));
}

ExpressionId JsonGrammar::integer() {
  if (!integer_) {
    const ExpressionId digit = pool_.character(CodePointSet({{'0', '9'}}));
    const ExpressionId first = pool_.character(CodePointSet({{'1', '9'}}));
    integer_ =
        pool_.choice({pool_.bytes("0"),
                      pool_.sequence({pool_.optional(pool_.bytes("-")), first, pool_.repeat(digit, 0, 17)})});
  }
  return *integer_;
}

ExpressionId JsonGrammar::number() {
  if (!number_) {
    const ExpressionId digit = pool_.character(CodePointSet({{'0', '9'}}));
    const ExpressionId first = pool_.character(CodePointSet({{'1', '9'}}));
    const ExpressionId whole =
        pool_.choice({pool_.bytes("0"), pool_.sequence({first, pool_.repeat(digit, 0, 14)})});
    const ExpressionId fraction = pool_.sequence({pool_.bytes("."), pool_.repeat(digit, 1, 15)});
    const ExpressionId exponent = pool_.sequence(
        {pool_.character(CodePointSet({{'E', 'E'}, {'e', 'e'}})),
         pool_.optional(pool_.character(CodePointSet({{'+', '+'}, {'-', '-'}}))), pool_.repeat(digit, 1, 2)});
    number_ = pool_.sequence(
        {pool_.optional(pool_.bytes("-")), whole, pool_.optional(fraction), pool_.optional(exponent)});
  }
  return *number_;
}

ExpressionId JsonGrammar::value() {
  if (!value_) {
    value_ = pool_.add_rule("json value");
    pool_.define(*value_,
                 pool_.choice({object(), array({}, pool_.rule(*value_), 0, std::nullopt), string(), number(),
                               pool_.bytes("true"), pool_.bytes("false"), pool_.bytes("null")}));
  }
  return pool_.rule(*value_);
}

ExpressionId JsonGrammar::object() {
  const ExpressionId member = pool_.sequence({string(), colon(), value()});
  const ExpressionId more = pool_.sequence({pool_.bytes(","), space(), member});
  const ExpressionId members =
      pool_.sequence({space(), member, pool_.repeat(more, 0, std::nullopt), space()});
  return pool_.sequence({pool_.bytes("{"), pool_.optional(members), pool_.bytes("}")});
}

ExpressionId JsonGrammar::array(const std::vector<ExpressionId>& first, ExpressionId item, int min,
                                std::optional<int> max) {
  if (max && *max < min) return pool_.never();
  const int given = static_cast<int>(first.size());
  const auto allows = [&](int count) { return !max || count <= *max; };
  const ExpressionId comma = pool_.sequence({pool_.bytes(","), space()});
  // From the last position to the first: what may follow i items.
  ExpressionId tail = pool_.never();
  if (allows(given)) {
    const int left = std::max(0, min - given);
    std::optional<int> most;
    if (max) most = *max - given;
    if (given > 0) {
      tail = pool_.repeat(pool_.sequence({comma, item}), left, most);
    } else if (!most || *most > 0) {
      if (most) most = *most - 1;
      const ExpressionId more = pool_.repeat(pool_.sequence({comma, item}), std::max(0, left - 1), most);
      const ExpressionId some = pool_.sequence({space(), item, more, space()});
      tail = left == 0 ? pool_.optional(some) : some;
    } else {
      tail = pool_.empty();
    }
  }
  for (int i = given - 1; i >= 0; --i) {
    const auto index = static_cast<std::size_t>(i);
    ExpressionId here = pool_.never();
    if (allows(i + 1)) {
      here = i == 0 ? pool_.sequence({space(), first[0], tail, space()})
                    : pool_.sequence({comma, first[index], tail});
    }
    tail = i >= min ? pool_.choice({pool_.empty(), here}) : here;
  }
  return pool_.sequence({pool_.bytes("["), tail, pool_.bytes("]")});
}

}  // namespace mererun
