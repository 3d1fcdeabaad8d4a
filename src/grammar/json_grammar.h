#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"

namespace mererun {

/// Whether '<' may stand in a string, or only its escape: where the output's own markup must not be forged.
enum class MarkupText { kAllowed, kEscaped };

/// The parts of which JSON texts are made.
///
/// White space is what common writers put: nothing, a space, or a line end with at most 32 spaces and tabs,
/// after `{`, `[` and `,` and before `}` and `]`; at most one space after `:`. Numbers are bounded so that
/// any reader holds them: integers to 18 digits; others to 15 digits before and 15 behind the point and an
/// exponent of two digits.
///
/// Thread-safety: thread-compatible.
class JsonGrammar {
 public:
  JsonGrammar(ExpressionPool& pool, MarkupText markup) : pool_(pool), markup_(markup) {}

  MarkupText markup() const { return markup_; }

  ExpressionId space();
  ExpressionId colon();
  /// Any string of min to max characters, quotes included.
  ExpressionId string(int min = 0, std::optional<int> max = std::nullopt);
  /// A string that is none of `names`; its characters are unescaped as far as it shares them with a name.
  ExpressionId string_except(const std::vector<std::string>& names);
  ExpressionId integer();
  ExpressionId number();
  /// Any value, any object.
  ExpressionId value();
  ExpressionId object();
  /// `[` items `]` of min to max items, the first ones as given, the others `item`.
  ExpressionId array(const std::vector<ExpressionId>& first, ExpressionId item, int min,
                     std::optional<int> max);

 private:
  ExpressionId any_character();
  ExpressionId except(const std::vector<std::u32string>& names, std::size_t depth);

  ExpressionPool& pool_;
  MarkupText markup_;
  std::optional<ExpressionId> space_, integer_, number_;
  std::optional<RuleId> value_;
};

}  // namespace mererun
