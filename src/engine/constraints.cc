#include "engine/constraints.h"

#include <span>
#include <vector>

#include "grammar/compile.h"

namespace mererun {
namespace {

/// No form depends on the vocabulary.
std::shared_ptr<const GrammarVocabulary> empty_vocabulary() {
  return std::make_shared<const GrammarVocabulary>(std::span<const GrammarVocabulary::Token>(),
                                                   std::vector<TokenId>());
}

}  // namespace

std::unique_ptr<TokenConstraint> grammar_constraint(const Engine& engine, std::string_view gbnf) {
  return compile_grammar(gbnf, engine.grammar_vocabulary());
}

std::unique_ptr<TokenConstraint> json_object_constraint(const Engine& engine) {
  return compile_json_object(engine.grammar_vocabulary());
}

std::unique_ptr<TokenConstraint> json_schema_constraint(const Engine& engine,
                                                        const nlohmann::ordered_json& schema) {
  return compile_json_schema(schema, engine.grammar_vocabulary());
}

void check_grammar(std::string_view gbnf) { (void)compile_grammar(gbnf, empty_vocabulary()); }

void check_json_schema(const nlohmann::ordered_json& schema) {
  (void)compile_json_schema(schema, empty_vocabulary());
}

std::unique_ptr<TokenConstraint> tool_call_constraint(const Engine& engine,
                                                      const nlohmann::ordered_json& tools,
                                                      const ForcedToolCalls& calls) {
  return compile_tool_calls(tools, {.name = calls.name, .allows_several = calls.allows_several},
                            engine.grammar_vocabulary());
}

}  // namespace mererun
