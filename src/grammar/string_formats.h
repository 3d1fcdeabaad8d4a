#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mererun {

/// The anchored pattern (see parse_pattern) of a JSON schema's string format. Each is a subset of its format:
/// dates are real days of the years 1000 to 9999, times have no leap second, addresses no quoted parts.
std::optional<std::string_view> pattern_of_format(std::string_view name);

/// Names of the formats, for messages.
std::string format_names();

}  // namespace mererun
