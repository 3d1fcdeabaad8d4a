#pragma once

#include <nlohmann/json_fwd.hpp>

#include "grammar/compile.h"
#include "grammar/expression.h"

namespace mererun {

/// The rule of one or more tool calls, as compile_tool_calls describes them.
///
///   <tool_call>\n<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n</tool_call>
///
/// `<tool_call>` and its end are added tokens where the vocabulary has them. Parameters come in the order of
/// the schema and none but those it names.
/// Errors: kInvalidArgument for tools of another shape, an unknown name, names that the form can't hold, and
/// the errors of the schemas.
RuleId add_tool_calls(ExpressionPool& pool, const nlohmann::ordered_json& tools,
                      const ToolCallOptions& options, const GrammarVocabulary& vocabulary);

}  // namespace mererun
