#include "cli/value_parsing.h"

#include <charconv>
#include <cmath>

namespace mererun {

namespace {

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_whole<std::int64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
  const auto value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::uint64_t> parse_seed(std::string_view text) {
  if (const auto value = parse_whole<std::uint64_t>(text)) return value;
  const auto value = parse_integer(text);
  return value ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
}

}  // namespace mererun
