#include "model/norm_convention.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace mererun {
namespace {

NormStatistics statistics(std::vector<float> values) {
  NormStatistics result;
  result.add(values);
  return result;
}

TEST(NormConvention, MeasuresTheShareOfNegativeEntries) {
  std::vector<float> values(100, 1.0f);
  EXPECT_EQ(measured_convention(statistics(values)), NormConvention::kFinal);
  for (std::size_t i = 0; i < 5; ++i) values[i] = -0.1f;
  EXPECT_EQ(measured_convention(statistics(values)), NormConvention::kFinal);  // 5% is not more than 5%
  values[5] = -0.1f;
  EXPECT_EQ(measured_convention(statistics(values)), NormConvention::kZeroCentred);
  EXPECT_EQ(measured_convention(statistics(std::vector<float>(64, 0.0f))), NormConvention::kZeroCentred);
}

TEST(NormConvention, OnlyAClearTensorContradictsItsGroup) {
  EXPECT_TRUE(contradicts(statistics({-0.1f, 0.1f, -0.2f, 0.05f}), NormConvention::kFinal));
  EXPECT_TRUE(contradicts(statistics({0.9f, 1.1f, 1.2f, 0.8f}), NormConvention::kZeroCentred));
  EXPECT_FALSE(contradicts(statistics({0.9f, 1.1f, 1.2f, 0.8f}), NormConvention::kFinal));
  EXPECT_FALSE(contradicts(statistics({0.3f, 0.1f, 0.2f, 0.4f}),
                           NormConvention::kZeroCentred));  // all above 0, but not around 1
  EXPECT_FALSE(contradicts(statistics({2.0f, 1.9f, 2.2f, 1.8f}), NormConvention::kZeroCentred));
  EXPECT_FALSE(contradicts(statistics({-0.1f, 1.1f, 1.2f, 0.8f}), NormConvention::kFinal));
}

TEST(NormConvention, AppliesTheOffsetOnce) {
  std::vector<float> weight{-0.25f, 0.5f};
  apply_convention(NormConvention::kFinal, weight);
  EXPECT_EQ(weight, (std::vector<float>{-0.25f, 0.5f}));
  apply_convention(NormConvention::kZeroCentred, weight);
  EXPECT_EQ(weight, (std::vector<float>{0.75f, 1.5f}));
}

TEST(NormConvention, NamesRoundTrip) {
  for (const NormConvention convention : {NormConvention::kFinal, NormConvention::kZeroCentred}) {
    EXPECT_EQ(parse_norm_convention(name_of(convention)), convention);
  }
  EXPECT_THROW((void)parse_norm_convention("shifted"), Error);
}

}  // namespace
}  // namespace mererun
