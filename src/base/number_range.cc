#include "base/number_range.h"

#include <fmt/format.h>

#include <cmath>

namespace mererun {

bool NumberRange::holds(double value) const {
  return std::isfinite(value) && (without_low ? value > low : value >= low) && value <= high;
}

std::string NumberRange::text() const {
  const bool has_low = low != NumberRange{}.low, has_high = high != NumberRange{}.high;
  if (!has_low && !has_high) return "a number";
  if (has_high && !without_low) return fmt::format("a number from {} to {}", low, high);
  const std::string from = fmt::format("a number {} {}", without_low ? "above" : "of at least", low);
  return has_high ? fmt::format("{} and at most {}", from, high) : from;
}

std::string IntegerRange::text() const { return fmt::format("an integer from {} to {}", low, high); }

}  // namespace mererun
