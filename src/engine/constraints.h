#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "decode/token_constraint.h"
#include "engine/engine.h"

namespace mererun {

/// What GenerateRequest::constraint can be, over the engine's vocabulary. A constraint is on the answer: a
/// run whose prompt opens a reasoning block applies it behind the block's end. docs/constraints.md has what
/// is supported.
///
/// A compiled constraint can be kept and cloned for further requests of the same form; clones share what they
/// learn, so all of them belong to one thread at a time.
/// Errors of all: kInvalidArgument naming the place. Thread-safety: thread-safe functions.

/// Text that the rule `root` of a grammar in GBNF says.
std::unique_ptr<TokenConstraint> grammar_constraint(const Engine& engine, std::string_view gbnf);
/// A JSON object with any content.
std::unique_ptr<TokenConstraint> json_object_constraint(const Engine& engine);
/// A JSON value that a schema allows.
std::unique_ptr<TokenConstraint> json_schema_constraint(const Engine& engine,
                                                        const nlohmann::ordered_json& schema);
/// The errors of the two above that read a text of the user's, before there is an engine.
void check_grammar(std::string_view gbnf);
void check_json_schema(const nlohmann::ordered_json& schema);
/// Which calls a tool_choice other than "auto" and "none" wants.
struct ForcedToolCalls {
  std::string name = {};       // of the one tool; empty: any of the request's
  bool allows_several = true;  // parallel_tool_calls
};
/// One or more calls of `tools` (the request's array), from the first token of the answer.
std::unique_ptr<TokenConstraint> tool_call_constraint(const Engine& engine,
                                                      const nlohmann::ordered_json& tools,
                                                      const ForcedToolCalls& calls);

}  // namespace mererun
