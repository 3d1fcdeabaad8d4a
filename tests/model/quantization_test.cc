#include "model/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mererun {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(InferAffine, FollowsTheShapes) {
  EXPECT_THAT(infer_affine(5120, 640, 80), Optional(AffineFormat{4, 64}));
  EXPECT_THAT(infer_affine(2048, 512, 32), Optional(AffineFormat{8, 64}));
  EXPECT_THAT(infer_affine(128, 12, 1), Optional(AffineFormat{3, 128}));
  EXPECT_THAT(infer_affine(160, 25, 5), Optional(AffineFormat{5, 32}));
  EXPECT_THAT(infer_affine(64, 12, 1), Optional(AffineFormat{6, 64}));
  EXPECT_THAT(infer_affine(64, 4, 2), Optional(AffineFormat{2, 32}));
}

TEST(InferAffine, RefusesWhatIsNotWholeOrNotSupported) {
  EXPECT_EQ(infer_affine(64, 9, 1), std::nullopt);    // 4.5 bits
  EXPECT_EQ(infer_affine(64, 14, 1), std::nullopt);   // 7 bits
  EXPECT_EQ(infer_affine(64, 32, 1), std::nullopt);   // 16 bits
  EXPECT_EQ(infer_affine(64, 8, 4), std::nullopt);    // group 16
  EXPECT_EQ(infer_affine(192, 24, 5), std::nullopt);  // no whole group
  EXPECT_EQ(infer_affine(64, 0, 1), std::nullopt);
  EXPECT_EQ(infer_affine(64, 8, 0), std::nullopt);
  EXPECT_EQ(infer_affine(64, std::int64_t{1} << 62, 1), std::nullopt);
}

QuantizationConfig four_bits() { return {.present = true, .bits = 4, .group = 64, .modules = {}}; }

TEST(QuantizationCheck, AnEntryThatDisagreesIsAProblemNamingBoth) {
  QuantizationConfig config = four_bits();
  config.modules["a"] = {.quantised = true, .bits = 6, .group = 64, .key = "language_model.model.a"};
  config.modules["c"] = {.quantised = false, .bits = 4, .group = 64, .key = "c"};
  QuantizationCheck check(config);
  EXPECT_EQ(check.see({"a"}, AffineFormat{6, 64}), std::nullopt);
  EXPECT_THAT(
      check.see({"a"}, AffineFormat{4, 64}),
      Optional(AllOf(HasSubstr("6-bit g64"), HasSubstr("language_model.model.a"), HasSubstr("4-bit g64"))));
  EXPECT_THAT(check.see({"other", "a"}, AffineFormat{4, 64}), Optional(HasSubstr("6-bit g64")));
  EXPECT_THAT(check.see({"a"}, std::nullopt), Optional(HasSubstr("unquantised")));
  EXPECT_EQ(check.see({"c"}, std::nullopt), std::nullopt);
  EXPECT_THAT(check.see({"c"}, AffineFormat{4, 64}), Optional(HasSubstr("expected unquantised")));
}

TEST(QuantizationCheck, ADefaultYieldsToShapesWithANote) {
  const QuantizationConfig config = four_bits();
  QuantizationCheck check(config);
  EXPECT_EQ(check.see({"a"}, AffineFormat{4, 64}), std::nullopt);
  EXPECT_EQ(check.deviation_note(), std::nullopt);
  EXPECT_EQ(check.see({"b"}, AffineFormat{8, 64}), std::nullopt);
  EXPECT_EQ(check.see({"c"}, std::nullopt), std::nullopt);
  EXPECT_EQ(check.unmatched_default(), std::nullopt);
  EXPECT_THAT(check.deviation_note(), Optional(AllOf(HasSubstr("1 tensors"), HasSubstr("b is 8-bit g64"))));
}

TEST(QuantizationCheck, ADefaultThatNothingMatchesIsAProblem) {
  const QuantizationConfig config = four_bits();
  QuantizationCheck check(config);
  EXPECT_THAT(check.unmatched_default(), Optional(HasSubstr("none that is quantised")));
  EXPECT_EQ(check.see({"a"}, AffineFormat{2, 128}), std::nullopt);
  EXPECT_THAT(check.unmatched_default(),
              Optional(AllOf(HasSubstr("4-bit g64"), HasSubstr("2-bit g128 by the shapes of a"))));
}

TEST(QuantizationCheck, WithoutADictionaryShapesDecideAlone) {
  const QuantizationConfig config;
  QuantizationCheck check(config);
  EXPECT_EQ(check.see({"a"}, AffineFormat{2, 128}), std::nullopt);
  EXPECT_EQ(check.unmatched_default(), std::nullopt);
  EXPECT_THAT(check.deviation_note(), Optional(HasSubstr("states no quantization")));
}

}  // namespace
}  // namespace mererun
