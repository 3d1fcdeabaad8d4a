#include "grammar/compile.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "grammar/automaton.h"
#include "grammar/gbnf_parser.h"
#include "grammar/grammar_constraint.h"
#include "grammar/json_grammar.h"
#include "grammar/reasoning_constraint.h"
#include "grammar/schema_compiler.h"
#include "grammar/tool_call_grammar.h"

namespace mererun {
namespace {

std::unique_ptr<TokenConstraint> constrain(const ExpressionPool& pool, RuleId root,
                                           std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return std::make_unique<GrammarConstraint>(Automaton::compile(pool, root), std::move(vocabulary));
}

}  // namespace

std::unique_ptr<TokenConstraint> compile_grammar(std::string_view gbnf,
                                                 std::shared_ptr<const GrammarVocabulary> vocabulary) {
  ExpressionPool pool;
  const RuleId root = parse_gbnf(pool, gbnf);
  return constrain(pool, root, std::move(vocabulary));
}

std::unique_ptr<TokenConstraint> compile_json_object(std::shared_ptr<const GrammarVocabulary> vocabulary) {
  ExpressionPool pool;
  const RuleId root = pool.add_rule("json object");
  pool.define(root, JsonGrammar(pool, MarkupText::kAllowed).object());
  return constrain(pool, root, std::move(vocabulary));
}

std::unique_ptr<TokenConstraint> compile_json_schema(const nlohmann::ordered_json& schema,
                                                     std::shared_ptr<const GrammarVocabulary> vocabulary) {
  ExpressionPool pool;
  const RuleId root = pool.add_rule("json schema");
  SchemaCompiler compiler(pool, schema, "json_schema");
  pool.define(root, compiler.value(compiler.reader().root()));
  compiler.finish();
  return constrain(pool, root, std::move(vocabulary));
}

std::unique_ptr<TokenConstraint> compile_tool_calls(const nlohmann::ordered_json& tools,
                                                    const ToolCallOptions& options,
                                                    std::shared_ptr<const GrammarVocabulary> vocabulary) {
  ExpressionPool pool;
  const RuleId root = add_tool_calls(pool, tools, options, *vocabulary);
  return constrain(pool, root, std::move(vocabulary));
}

std::unique_ptr<TokenConstraint> constrain_after_reasoning(
    std::unique_ptr<TokenConstraint> inner, std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return std::make_unique<ReasoningConstraint>(std::move(inner), std::move(vocabulary));
}

}  // namespace mererun
