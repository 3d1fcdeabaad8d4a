#include "kernels/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/rope_frequency.h"

namespace mererun {
namespace {

namespace nm = numerics;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Distance of f32 neighbours around the true value.
double ulp_of(double truth) {
  int exponent = 0;
  std::frexp(truth, &exponent);
  return std::max(std::ldexp(1.0, exponent - 24), 0x1p-149);
}

/// Largest error in ulp over every 499th float in [first, last] (bit patterns); a true value that rounds to
/// infinity must give infinity.
template <typename Function, typename Truth>
double worst_error(Function function, Truth truth, std::uint32_t first, std::uint32_t last) {
  double worst = 0;
  for (std::uint64_t u = first; u <= last; u += 499) {
    const float x = nm::from_bits(static_cast<std::uint32_t>(u));
    const double expected = truth(static_cast<double>(x));
    const float got = function(x);
    if (!std::isfinite(static_cast<float>(expected))) {
      EXPECT_EQ(got, static_cast<float>(expected)) << x;
      continue;
    }
    worst = std::max(worst, std::fabs(got - expected) / ulp_of(expected));
  }
  return worst;
}

/// Over all finite floats of both signs.
template <typename Function, typename Truth>
double worst_error(Function function, Truth truth) {
  return std::max(worst_error(function, truth, 0, 0x7f7fffffu),
                  worst_error(function, truth, 0x80000000u, 0xff7fffffu));
}

TEST(Numerics, ExpIsWithinItsBound) {
  EXPECT_LT(worst_error([](float x) { return nm::exp_f32(x); }, [](double x) { return std::exp(x); }), 1.1);
}

TEST(Numerics, Exp2IsWithinItsBound) {
  EXPECT_LT(worst_error([](float x) { return nm::exp2_f32(x); }, [](double x) { return std::exp2(x); }), 1.0);
}

TEST(Numerics, Log1pIsWithinItsBound) {
  EXPECT_LT(worst_error([](float x) { return nm::log1p_f32(x); }, [](double x) { return std::log1p(x); }, 0,
                        0x5f800000u),
            1.5);
}

TEST(Numerics, SigmoidIsWithinItsBound) {
  const auto truth = [](double x) {
    return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
  };
  EXPECT_LT(worst_error([](float x) { return nm::sigmoid_f32(x); }, truth), 2.5);
}

TEST(Numerics, SoftplusIsWithinItsBound) {
  const auto truth = [](double x) { return x > 40 ? x : std::log1p(std::exp(x)); };
  EXPECT_LT(worst_error([](float x) { return nm::softplus_f32(x); }, truth), 2.0);
}

TEST(Numerics, ExpKeepsTheEndsOfTheRange) {
  EXPECT_EQ(nm::exp_f32(0.0f), 1.0f);
  EXPECT_EQ(nm::exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(nm::exp_f32(kInf), kInf);
  EXPECT_EQ(nm::exp_f32(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(nm::exp_f32(kNan)));
  EXPECT_TRUE(std::isnan(nm::exp_f32(-kNan)));
  EXPECT_EQ(nm::exp_f32(88.73f), kInf);
  EXPECT_TRUE(std::isfinite(nm::exp_f32(88.72f)));
  EXPECT_EQ(nm::exp_f32(-103.9f), 0x1p-149f);  // a subnormal result
  EXPECT_EQ(nm::exp_f32(-104.0f), 0.0f);
}

TEST(Numerics, Exp2IsExactAtIntegers) {
  for (int n = -149; n <= 127; ++n) {
    EXPECT_EQ(nm::exp2_f32(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
  }
  EXPECT_EQ(nm::exp2_f32(128.0f), kInf);
  EXPECT_EQ(nm::exp2_f32(-150.0f), 0.0f);
  EXPECT_EQ(nm::exp2_f32(-kInf), 0.0f);
  EXPECT_EQ(nm::exp2_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(nm::exp2_f32(kNan)));
}

TEST(Numerics, ActivationsKeepNanAndLimits) {
  EXPECT_EQ(nm::sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(nm::sigmoid_f32(kInf), 1.0f);
  EXPECT_EQ(nm::sigmoid_f32(-kInf), 0.0f);
  EXPECT_EQ(nm::silu_f32(0.0f), 0.0f);
  EXPECT_EQ(nm::softplus_f32(20.5f), 20.5f);
  EXPECT_EQ(nm::softplus_f32(kInf), kInf);
  EXPECT_EQ(nm::softplus_f32(-kInf), 0.0f);
  for (float y : {nm::sigmoid_f32(kNan), nm::silu_f32(kNan), nm::softplus_f32(kNan), nm::log1p_f32(kNan),
                  nm::silu_f32(-kInf)}) {
    EXPECT_TRUE(std::isnan(y));
  }
}

TEST(Numerics, RoundsHalvesToEven) {
  const std::vector<std::pair<float, int>> cases = {{0.5f, 0},   {1.5f, 2},   {2.5f, 2},         {-0.5f, 0},
                                                    {-1.5f, -2}, {-2.5f, -2}, {32511.5f, 32512}, {0.49f, 0}};
  for (const auto& [x, expected] : cases) EXPECT_EQ(nm::rne_i32(x), expected) << x;
}

TEST(QuantiseGroup, RoundsByHand) {
  // absmax 32512 makes d = 1: each value rounds to its nearest integer.
  std::vector<float> x(32, 0.0f);
  x[0] = -32512.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = 1000.4f;
  std::vector<std::int16_t> codes(32, 99);
  const nm::GroupScale scale = nm::quantise_group(x.data(), 32, codes.data());
  EXPECT_EQ(scale.d, 1.0f);
  EXPECT_EQ(codes[0], -32512);
  EXPECT_EQ(codes[1], 0);
  EXPECT_EQ(codes[2], 2);
  EXPECT_EQ(codes[3], -2);
  EXPECT_EQ(codes[4], 1000);
  EXPECT_EQ(codes[5], 0);
  EXPECT_EQ(scale.sum, -31512.0f);
}

TEST(QuantiseGroup, DividesByTheRange) {
  std::vector<float> x(64, 0.3f);
  std::vector<std::int16_t> codes(64);
  const nm::GroupScale scale = nm::quantise_group(x.data(), 64, codes.data());
  EXPECT_EQ(scale.d, 0.3f / 32512.0f);
  for (std::int16_t code : codes) EXPECT_EQ(code, 32512);
  EXPECT_EQ(scale.sum, scale.d * (64.0f * 32512.0f));
}

TEST(QuantiseGroup, TinyGroupsAreZero) {
  std::vector<std::int16_t> codes(32, 99);
  std::vector<float> x(32, 0.0f);
  x[7] = -0x1.fffffep-101f;
  nm::GroupScale scale = nm::quantise_group(x.data(), 32, codes.data());
  EXPECT_EQ(scale.d, 1.0f);
  EXPECT_EQ(scale.sum, 0.0f);
  EXPECT_EQ(codes, std::vector<std::int16_t>(32, 0));
  x[7] = -0x1p-100f;
  scale = nm::quantise_group(x.data(), 32, codes.data());
  EXPECT_EQ(scale.d, 0x1p-100f / 32512.0f);
  EXPECT_EQ(codes[7], -32512);
}

TEST(QuantiseGroup, NonFiniteValuesSurface) {
  for (float bad : {kNan, -kNan, kInf, -kInf}) {
    std::vector<float> x(32, 1.0f);
    x[31] = bad;
    std::vector<std::int16_t> codes(32, 99);
    const nm::GroupScale scale = nm::quantise_group(x.data(), 32, codes.data());
    EXPECT_EQ(codes, std::vector<std::int16_t>(32, 0));
    EXPECT_EQ(scale.d, 1.0f);
    EXPECT_TRUE(std::isnan(scale.sum));
    EXPECT_TRUE(std::isnan(nm::quantise_head_vector(x.data(), 32, codes.data())));
    EXPECT_EQ(codes, std::vector<std::int16_t>(32, 0));
  }
}

TEST(QuantiseGroup, HeadVectorsFollowTheSameRule) {
  std::vector<float> x = {1.0f, -2.0f, 0.25f, 0.0f};
  std::vector<std::int16_t> codes(4);
  const float scale = nm::quantise_head_vector(x.data(), 4, codes.data());
  EXPECT_EQ(scale, 2.0f / 32512.0f);
  EXPECT_EQ(codes, (std::vector<std::int16_t>{16256, -32512, 4064, 0}));
  const std::vector<float> zeros(4, 0.0f);
  EXPECT_EQ(nm::quantise_head_vector(zeros.data(), 4, codes.data()), 1.0f);
  EXPECT_EQ(codes, std::vector<std::int16_t>(4, 0));
}

TEST(QuantiseGroup, LargestValuesStayInRange) {
  for (float most : {std::numeric_limits<float>::max(), 0x1.fffffep-1f, 0x1.000002p0f, 3.4e-30f}) {
    std::vector<float> x(32, most);
    std::vector<std::int16_t> codes(32);
    nm::quantise_group(x.data(), 32, codes.data());
    for (std::int16_t code : codes) EXPECT_EQ(code, 32512) << most;
  }
}

TEST(Sums, SlicesCutAtFloors) {
  EXPECT_EQ(nm::slice_count(2047), 1);
  EXPECT_EQ(nm::slice_count(2048), 8);
  const std::vector<int> expected = {0, 4, 8, 12, 16, 20, 24, 28, 33};
  for (int j = 0; j <= 8; ++j) EXPECT_EQ(nm::slice_begin(j, 8, 33), expected[static_cast<std::size_t>(j)]);
  EXPECT_EQ(nm::slice_begin(7, 8, 35), 30);
  EXPECT_EQ(nm::slice_begin(1, 1, 5), 5);
}

TEST(Sums, LanesJoinByHalving) {
  EXPECT_EQ(nm::reduction_lanes(1023), 32);
  EXPECT_EQ(nm::reduction_lanes(1024), 256);
  // 16 and 48 meet in lane 16 before lane 0 sees them; one after another they would be lost.
  std::vector<float> x(64, 0.0f);
  x[0] = 0x1p24f;
  x[16] = 1;
  x[48] = 1;
  EXPECT_EQ(nm::sum_of_values(x.data(), 64), 0x1p24f + 2);
  // In one lane, in ascending order, they are lost.
  std::vector<float> longer(96, 0.0f);
  longer[0] = 0x1p24f;
  longer[32] = 1;
  longer[64] = 1;
  EXPECT_EQ(nm::sum_of_values(longer.data(), 96), 0x1p24f);
  EXPECT_EQ(nm::sum_of_squares(longer.data(), 96), 0x1p48f);
}

TEST(Sums, JoinsFollowTheirTrees) {
  const std::vector<float> eight = {0x1p24f, 1, 1, 1, -0x1p24f, 1, 1, 1};
  // (2^24 + 1 -> 2^24, + 2) + (-2^24 + 1 exact, + 2)
  EXPECT_EQ(nm::join8(eight.data()), (0x1p24f + 2) + (-0x1p24f + 3));
  std::vector<float> sixteen(16, 0.0f);
  sixteen[0] = 0x1p24f;
  sixteen[5] = 1;
  sixteen[8] = 1;
  // L0 + L1 loses the first one, then (L2 + L3) = 1 is lost as well.
  EXPECT_EQ(nm::join16(sixteen.data()), 0x1p24f);
  sixteen[12] = 1;  // L2 + L3 = 2 survives
  EXPECT_EQ(nm::join16(sixteen.data()), 0x1p24f + 2);
}

TEST(RopeFrequency, MatchesTheReferenceValues) {
  EXPECT_EQ(rope_inverse_frequency(1e7f, 0, 64), 1.0f);
  EXPECT_NEAR(rope_inverse_frequency(1e7f, 1, 64), 0.6042964, 1e-7);
  EXPECT_NEAR(rope_inverse_frequency(1e7f, 2, 64), 0.3651741, 1e-7);
  EXPECT_NEAR(rope_inverse_frequency(1e7f, 15, 64), 5.232991e-4, 1e-10);
  EXPECT_NEAR(rope_inverse_frequency(1e7f, 31, 64), 1.654817e-7, 1e-13);
}

TEST(Rotation, TurnsAPair) {
  EXPECT_EQ(nm::rotate_first(2, 3, 0.5f, 0.25f), 0.25f);
  EXPECT_EQ(nm::rotate_second(2, 3, 0.5f, 0.25f), 2.0f);
}

TEST(DeltaDecay, MatchesTheFormula) {
  const double expected = std::exp(-std::exp(0.5) * std::log1p(std::exp(-1.25 + 0.75)));
  EXPECT_NEAR(nm::delta_decay(0.5f, -1.25f, 0.75f), expected, 1e-7);
}

TEST(SoftmaxFold, BringsBothSidesToTheLargerMaximum) {
  const nm::SoftmaxFold f = nm::fold_of(3.0f, 5.0f);
  EXPECT_EQ(f.m, 5.0f);
  EXPECT_EQ(f.keep, 0.25f);
  EXPECT_EQ(f.add, 1.0f);
  EXPECT_EQ(nm::fold_sum(8.0f, 3.0f, f), 5.0f);
}

}  // namespace
}  // namespace mererun
