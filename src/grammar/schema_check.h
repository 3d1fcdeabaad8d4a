#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "grammar/schema_reader.h"

namespace mererun {

/// The values of `enum` or `const` that also satisfy what else their schema says.
/// Errors: those of SchemaReader::read and parse_pattern.
std::vector<const nlohmann::ordered_json*> satisfying_values(SchemaReader& reader, const ValueRules& rules);

}  // namespace mererun
