#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace mererun {

/// Reads a grammar in the notation of llama.cpp's GBNF and returns its rule `root`.
///
/// `name ::= alternatives`, one rule after the other; "literal", [class], [^class], `.` (any character),
/// (group), `|`, `*`, `+`, `?`, {m}, {m,}, {m,n}, # comment. Escapes in literals and classes, each one
/// character: \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH. An alternative goes on over line ends until
/// the next rule. Errors: kInvalidArgument with line and column for malformed text, a rule that is missing or
/// given twice, more than 200 nested groups, and for text above 1 MiB.
RuleId parse_gbnf(ExpressionPool& pool, std::string_view text);

}  // namespace mererun
