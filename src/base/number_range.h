#pragma once

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

}  // namespace mererun
