#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace mererun {

/// Reads the pattern of a JSON schema: the regular part of ECMA-262's expressions. Returns an expression for
/// every text in which the pattern is found (it matches anywhere unless anchored), its characters in
/// `encoding`, all of them from `alphabet`.
///
/// Read: literals, `.`, classes, \d \w \s and their complements, escapes of characters, groups, alternatives,
/// greedy and lazy quantifiers, `^` at the start and `$` at the end of an alternative. Groups are matched,
/// not remembered. Errors: kInvalidArgument with `where` for anything else (look-around, back-references, \b,
/// \p, inner anchors, more than 200 nested groups) and for malformed patterns.
ExpressionId parse_pattern(ExpressionPool& pool, std::string_view pattern, CharacterEncoding encoding,
                           const CodePointSet& alphabet, std::string_view where);

}  // namespace mererun
