#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace mererun {

/// An interval of numbers; each end belongs to it unless said otherwise.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool without_low = false;

  /// False for NaN, and for an infinity where no end is named.
  bool holds(double value) const;
  /// As messages say it: "a number from 0 to 2", "a number above 0 and at most 1", "a number of at least 1".
  std::string text() const;
};

/// An interval of integers, ends included. Counts fit an int unless a higher end is named (sizes in bytes
/// do).
struct IntegerRange {
  std::int64_t low = std::numeric_limits<int>::min();
  std::int64_t high = std::numeric_limits<int>::max();

  bool holds(std::int64_t value) const { return value >= low && value <= high; }
  /// As messages say it: "an integer from 2 to 2147483647".
  std::string text() const;
};

/// The high end of what counts bytes.
inline constexpr std::int64_t kAnySize = std::numeric_limits<std::int64_t>::max();

}  // namespace mererun
