#include "grammar/expression.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"

namespace mererun {

ExpressionId ExpressionPool::add(Expression expression) {
  if (expressions_.size() >= kMaxExpressions) {
    fail_expected(ErrorCode::kInvalidArgument, "grammar", fmt::format("at most {} parts", kMaxExpressions),
                  "more");
  }
  expressions_.push_back(std::move(expression));
  return static_cast<ExpressionId>(expressions_.size()) - 1;
}

ExpressionId ExpressionPool::bytes(std::string_view text) {
  return add({.kind = ExpressionKind::kBytes, .bytes = std::string(text)});
}

ExpressionId ExpressionPool::character(CodePointSet set, CharacterEncoding encoding) {
  const bool uses_set = encoding == CharacterEncoding::kText || encoding == CharacterEncoding::kJson;
  if (uses_set && set.empty()) return never();
  return add({.kind = ExpressionKind::kClass, .encoding = encoding, .set = std::move(set)});
}

ExpressionId ExpressionPool::sequence(std::vector<ExpressionId> parts) {
  for (const ExpressionId part : parts)
    if (is_never(part)) return never();
  if (parts.size() == 1) return parts.front();
  return add({.kind = ExpressionKind::kSequence, .children = std::move(parts)});
}

ExpressionId ExpressionPool::choice(std::vector<ExpressionId> options) {
  std::erase_if(options, [this](ExpressionId option) { return is_never(option); });
  if (options.empty()) return never();
  if (options.size() == 1) return options.front();
  return add({.kind = ExpressionKind::kChoice, .children = std::move(options)});
}

ExpressionId ExpressionPool::repeat(ExpressionId body, int min, std::optional<int> max) {
  if (min < 0 || min > kMaxCount || (max && (*max < min || *max > kMaxCount))) {
    fail_expected(ErrorCode::kInvalidArgument, "grammar: repetition",
                  fmt::format("0 <= min <= max <= {}", kMaxCount),
                  max ? fmt::format("{{{},{}}}", min, *max) : fmt::format("{{{},}}", min));
  }
  if (is_never(body)) return min == 0 ? empty() : never();
  return add({.kind = ExpressionKind::kRepeat, .children = {body}, .min = min, .max = max});
}

ExpressionId ExpressionPool::rule(RuleId rule) { return add({.kind = ExpressionKind::kRule, .rule = rule}); }

ExpressionId ExpressionPool::without(std::vector<std::string> strings) {
  return add({.kind = ExpressionKind::kWithout, .excluded = std::move(strings)});
}

ExpressionId ExpressionPool::with_length(ExpressionId body, int min, std::optional<int> max) {
  if (is_never(body) || (max && *max < min)) return never();
  return add({.kind = ExpressionKind::kLength, .children = {body}, .min = min, .max = max});
}

RuleId ExpressionPool::add_rule(std::string name) {
  rules_.push_back({std::move(name), std::nullopt});
  return static_cast<RuleId>(rules_.size()) - 1;
}

void ExpressionPool::define(RuleId rule, ExpressionId body) {
  rules_[static_cast<std::size_t>(rule)].body = body;
}

}  // namespace mererun
