#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace mererun {

using ExpressionId = int;
using RuleId = int;

/// How one character of a class is written in the output.
enum class CharacterEncoding {
  kText,  // its UTF-8
  kJson,  // as inside a JSON string, escaped only where JSON demands it
  // Any character of a JSON string in any spelling; the class itself is ignored. What follows starts with
  // '"'.
  kJsonFree,
  kJsonFreeEscapingMarkup,  // the same, but '<' only as an escape
  kTextFree,                // any character but '<', as UTF-8. What follows starts with a line end
};

enum class ExpressionKind {
  kNever,     // no text at all
  kEmpty,     // the empty text
  kBytes,     // these bytes
  kClass,     // one character
  kSequence,  // one after the other
  kChoice,    // any of
  kRepeat,    // min to max times
  kRule,      // what the rule says
  kWithout,   // text in which none of some strings occurs
  kLength,    // min to max characters of what a rule-free expression says
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kEmpty;
  CharacterEncoding encoding = CharacterEncoding::kText;  // kClass
  std::string bytes = {};                                 // kBytes
  CodePointSet set = {};                                  // kClass
  std::vector<ExpressionId> children = {};                // kSequence, kChoice; one of kRepeat and kLength
  std::vector<std::string> excluded = {};                 // kWithout
  int min = 0;                                            // kRepeat, kLength
  std::optional<int> max = {};                            // absent: no bound
  RuleId rule = 0;                                        // kRule
};

/// The expressions and rules of one grammar, as its reader finds them. Expressions may be shared.
///
/// Thread-safety: thread-compatible.
class ExpressionPool {
 public:
  static constexpr std::size_t kMaxExpressions = 400'000;

  ExpressionId never() { return add({.kind = ExpressionKind::kNever}); }
  ExpressionId empty() { return add({.kind = ExpressionKind::kEmpty}); }
  ExpressionId bytes(std::string_view text);
  ExpressionId character(CodePointSet set, CharacterEncoding encoding = CharacterEncoding::kText);
  ExpressionId sequence(std::vector<ExpressionId> parts);
  ExpressionId choice(std::vector<ExpressionId> options);
  ExpressionId optional(ExpressionId body) { return repeat(body, 0, 1); }
  /// Errors: kInvalidArgument for a bound above kMaxCount or max < min.
  ExpressionId repeat(ExpressionId body, int min, std::optional<int> max);
  ExpressionId rule(RuleId rule);
  /// Any characters, with none of `strings` (ASCII, each starting with '<' and with no other '<') among them.
  /// What follows starts with a line end or '<'.
  ExpressionId without(std::vector<std::string> strings);
  /// `body` uses no rules.
  ExpressionId with_length(ExpressionId body, int min, std::optional<int> max);

  RuleId add_rule(std::string name);
  void define(RuleId rule, ExpressionId body);

  const Expression& at(ExpressionId id) const { return expressions_[static_cast<std::size_t>(id)]; }
  bool is_never(ExpressionId id) const { return at(id).kind == ExpressionKind::kNever; }
  int num_rules() const { return static_cast<int>(rules_.size()); }
  const std::string& rule_name(RuleId rule) const { return rules_[static_cast<std::size_t>(rule)].name; }
  std::optional<ExpressionId> rule_body(RuleId rule) const {
    return rules_[static_cast<std::size_t>(rule)].body;
  }

  static constexpr int kMaxCount = 1'000'000'000;

 private:
  struct Rule {
    std::string name;
    std::optional<ExpressionId> body;
  };

  ExpressionId add(Expression expression);

  std::vector<Expression> expressions_;
  std::vector<Rule> rules_;
};

}  // namespace mererun
