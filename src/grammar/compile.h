#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "decode/token_constraint.h"
#include "grammar/grammar_vocabulary.h"

namespace mererun {

/// Constraints on what a model may say. docs/constraints.md has what each supports and where it is narrower
/// than its specification; whatever is generated satisfies the specification. What is not supported is
/// refused, never ignored.
///
/// Errors of all: kInvalidArgument naming the place in the grammar or schema, also for one that nothing
/// satisfies and above the bounds on size. Thread-safety: thread-safe functions.

/// Text that the rule `root` of a grammar says (see parse_gbnf).
std::unique_ptr<TokenConstraint> compile_grammar(std::string_view gbnf,
                                                 std::shared_ptr<const GrammarVocabulary> vocabulary);

/// A JSON object with any content.
std::unique_ptr<TokenConstraint> compile_json_object(std::shared_ptr<const GrammarVocabulary> vocabulary);

/// A JSON value that a schema allows.
std::unique_ptr<TokenConstraint> compile_json_schema(const nlohmann::ordered_json& schema,
                                                     std::shared_ptr<const GrammarVocabulary> vocabulary);

struct ToolCallOptions {
  std::string name;            // of the one tool to call; empty: any
  bool allows_several = true;  // calls, one after the other
};

/// One or more calls of the request's tools (an array in the shape of ToolSchemas), in the XML form that the
/// chat template teaches, arguments typed by each tool's schema.
std::unique_ptr<TokenConstraint> compile_tool_calls(const nlohmann::ordered_json& tools,
                                                    const ToolCallOptions& options,
                                                    std::shared_ptr<const GrammarVocabulary> vocabulary);

/// Lets everything pass up to and including the first `</think>`, then at most two line ends, and hands the
/// rest to `inner`.
std::unique_ptr<TokenConstraint> constrain_after_reasoning(
    std::unique_ptr<TokenConstraint> inner, std::shared_ptr<const GrammarVocabulary> vocabulary);

}  // namespace mererun
