// Which numbers a range holds, and how messages say it.
#include "base/number_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mererun {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumberRange, EndsBelongToItUnlessSaidOtherwise) {
  const NumberRange both{0, 2}, above{0, 1, true};
  EXPECT_TRUE(both.holds(0) && both.holds(2));
  EXPECT_FALSE(both.holds(std::nextafter(0.0, -1.0)) || both.holds(std::nextafter(2.0, 3.0)));
  EXPECT_FALSE(above.holds(0));
  EXPECT_TRUE(above.holds(std::nextafter(0.0, 1.0)) && above.holds(1));
}

TEST(NumberRange, HoldsNothingThatIsNoFiniteNumber) {
  for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
    EXPECT_FALSE(NumberRange{}.holds(value));
    EXPECT_FALSE((NumberRange{.low = 0}).holds(value));
  }
}

TEST(NumberRange, SaysWhatIsExpected) {
  EXPECT_EQ((NumberRange{0, 2}).text(), "a number from 0 to 2");
  EXPECT_EQ((NumberRange{0, 1, true}).text(), "a number above 0 and at most 1");
  EXPECT_EQ((NumberRange{.low = 1}).text(), "a number of at least 1");
  EXPECT_EQ((NumberRange{.low = 1, .without_low = true}).text(), "a number above 1");
  EXPECT_EQ(NumberRange{}.text(), "a number");
}

}  // namespace

}  // namespace mererun
