#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "grammar/schema_reader.h"

namespace mererun {

/// True if a value of `enum` or `const` also satisfies what else its schema says.
/// Errors: those of SchemaReader::read and parse_pattern.
bool satisfies(SchemaReader& reader, const ValueRules& rules, const nlohmann::ordered_json& value);

}  // namespace mererun
