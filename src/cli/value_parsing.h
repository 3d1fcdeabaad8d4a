#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mererun {

/// A whole decimal integer, optionally signed; nothing else before or after it.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// A finite decimal number; nothing else before or after it.
std::optional<double> parse_number(std::string_view text);

/// A random seed: an integer of 64 bits, signed or unsigned, as its bit pattern.
std::optional<std::uint64_t> parse_seed(std::string_view text);

}  // namespace mererun
