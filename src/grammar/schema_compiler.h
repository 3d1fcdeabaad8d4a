#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "grammar/expression.h"
#include "grammar/json_grammar.h"
#include "grammar/schema_reader.h"

namespace mererun {

/// Turns a schema into expressions. Properties come in the order of the schema; those that it doesn't name
/// only where it allows them in so many words, or names none.
///
/// Thread-safety: thread-compatible.
class SchemaCompiler {
 public:
  static constexpr std::size_t kMaxValues = 4000;

  /// `schema` outlives the compiler. `where` begins every message.
  SchemaCompiler(ExpressionPool& pool, const nlohmann::ordered_json& schema, std::string where,
                 MarkupText markup = MarkupText::kAllowed)
      : pool_(pool), json_(pool, markup), reader_(schema, std::move(where)) {}

  SchemaReader& reader() { return reader_; }
  JsonGrammar& json() { return json_; }

  /// The JSON text of a value that satisfies all of these. Rules it needs are written by finish().
  ExpressionId value(const SchemaConjunction& conjunction);
  /// The same where strings stand bare, between "\n" and "\n</": as an argument of a tool call. None of
  /// `markup` (see ExpressionPool::without) occurs in a bare string; one with rules about it has no '<'.
  ExpressionId argument(const SchemaConjunction& conjunction, const std::vector<std::string>& markup);
  /// Writes the rules that are still to be written. Errors: as SchemaReader::read.
  void finish();

 private:
  struct Pending {
    RuleId rule;
    SchemaConjunction conjunction;
  };

  std::string json_text(const nlohmann::ordered_json& value) const;
  CodePointSet alphabet() const;
  ExpressionId json_value(const ValueRules& rules);
  ExpressionId bare_value(const ValueRules& rules, const std::vector<std::string>& markup);
  ExpressionId any_of_types(const ValueRules& rules);
  ExpressionId string(const ValueRules& rules);
  ExpressionId patterned(const ValueRules& rules, CharacterEncoding encoding);
  ExpressionId number(const ValueRules& rules);
  ExpressionId array(const ValueRules& rules);
  ExpressionId object(const ValueRules& rules);

  ExpressionPool& pool_;
  JsonGrammar json_;
  SchemaReader reader_;
  std::map<std::vector<const nlohmann::ordered_json*>, RuleId> rules_;  // by the schemas' places, ascending
  std::vector<Pending> pending_;
};

}  // namespace mererun
