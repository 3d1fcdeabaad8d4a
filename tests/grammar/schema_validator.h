#pragma once

#include <nlohmann/json_fwd.hpp>

namespace mererun::testing {

/// True if the value satisfies the schema as its specification says, written without a look at the grammar
/// code. Knows the keywords that random_schema uses, and throws std::invalid_argument for another.
bool is_valid(const nlohmann::ordered_json& root, const nlohmann::ordered_json& schema,
              const nlohmann::ordered_json& value);

}  // namespace mererun::testing
