#include "engine/constraints.h"

#include "grammar/compile.h"

namespace mererun {

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

std::unique_ptr<TokenConstraint> tool_call_constraint(const Engine& engine,
                                                      const nlohmann::ordered_json& tools,
                                                      const ForcedToolCalls& calls) {
  return compile_tool_calls(tools, {.name = calls.name, .allows_several = calls.allows_several},
                            engine.grammar_vocabulary());
}

}  // namespace mererun
