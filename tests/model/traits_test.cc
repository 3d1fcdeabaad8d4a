#include "model/traits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace mererun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Row {
  const char* id;
  Family family;
  MtpDefault mtp;
  int threshold;
  int width;
  int cap;
  int certified;
  int context;
  bool thinking;
  int layers;
  int hidden;
  int experts;
  int experts_per_token;
};

constexpr Row kTable[] = {
    {"demo-dense-4bit", Family::kDense, MtpDefault::kOn, 0, 8, 9, 9, 16384, false, 8, 512, 0, 0},
    {"demo-moe-4bit", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 16384, false, 8, 384, 32, 4},
    {"vision-chat-q38-27b-4bit", Family::kDense, MtpDefault::kOn, 0, 8, 9, 9, 262144, true, 64, 5120, 0, 0},
    {"vision-chat-q38-27b", Family::kDense, MtpDefault::kOptIn, 0, 8, 16, 9, 262144, true, 64, 5120, 0, 0},
    {"text-agent-ornith-35b-mlx-4bit", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 262144, true, 40, 2048,
     256, 8},
    {"text-agent-ornith-35b-mlx-6bit", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 262144, true, 40, 2048,
     256, 8},
    {"text-agent-ornith-35b-mlx-8bit", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 262144, true, 40, 2048,
     256, 8},
    {"text-agent-ornith-35b-mlx", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 262144, true, 40, 2048, 256, 8},
    {"vision-chat-ornith-35b", Family::kMoe, MtpDefault::kOn, 0, 4, 16, 9, 262144, true, 40, 2048, 256, 8},
    {"vision-chat-q38-flash-next-3bit-native-ple", Family::kFlashNext, MtpDefault::kOn, 0, 4, 16, 32, 262144,
     true, 48, 2560, 512, 10},
    {"vision-chat-q38-flash-next-3bit", Family::kFlashNext, MtpDefault::kOn, 0, 4, 16, 32, 262144, true, 48,
     2560, 512, 10},
    {"vision-chat-q38-flash-next-4bit", Family::kFlashNext, MtpDefault::kOn, 0, 4, 16, 32, 262144, true, 48,
     2560, 512, 10},
    {"vision-chat-q38-flash-next-mixed", Family::kFlashNext, MtpDefault::kOn, 0, 4, 16, 32, 262144, true, 48,
     2560, 512, 10},
    {"text-chat-q36-nano", Family::kMoe, MtpDefault::kOn, 6144, 4, 16, 9, 16384, false, 40, 2048, 256, 8},
    {"text-agent-ornith-9b", Family::kDense, MtpDefault::kOptIn, 0, 4, 16, 9, 16384, true, 0, 0, 0, 0},
};

TEST(Identity, TraitsTable) {
  ASSERT_EQ(known_models().size(), std::size(kTable));
  for (const Row& row : kTable) {
    SCOPED_TRACE(row.id);
    const ModelTraits* traits = find_traits(row.id);
    ASSERT_NE(traits, nullptr);
    EXPECT_EQ(traits->family, row.family);
    EXPECT_EQ(traits->mtp, row.mtp);
    EXPECT_EQ(traits->prompt_threshold, row.threshold);
    EXPECT_EQ(traits->width, row.width);
    EXPECT_EQ(traits->width_cap, row.cap);
    EXPECT_EQ(traits->certified_width, row.certified);
    EXPECT_EQ(traits->context, row.context);
    EXPECT_EQ(traits->thinking, row.thinking);
    EXPECT_EQ(traits->layers, row.layers);
    EXPECT_EQ(traits->hidden, row.hidden);
    EXPECT_EQ(traits->experts, row.experts);
    EXPECT_EQ(traits->experts_per_token, row.experts_per_token);
    EXPECT_EQ(traits->is_moe(), row.family != Family::kDense);
    EXPECT_EQ(traits->bundled, std::string_view(row.id).starts_with("demo-"));
  }
}

TEST(Identity, IdsAreUnique) {
  std::set<std::string> ids;
  for (const ModelTraits& traits : known_models()) EXPECT_TRUE(ids.insert(traits.id).second) << traits.id;
  EXPECT_EQ(find_traits("text-agent-ornith-35b-mtp"), nullptr);  // a head can't be run
  EXPECT_EQ(find_traits(""), nullptr);
}

TEST(Identity, LocalTraitsFollowTheFamily) {
  const ModelTraits dense = local_traits("mine", Family::kDense);
  EXPECT_EQ(dense.id, "local:mine");
  EXPECT_EQ(dense.mtp, MtpDefault::kOptIn);
  EXPECT_EQ(dense.prompt_threshold, 0);
  EXPECT_EQ(dense.certified_width, 9);
  EXPECT_EQ(dense.context, 16384);
  const ModelTraits moe = local_traits("mine", Family::kMoe);
  EXPECT_EQ(moe.mtp, MtpDefault::kOn);
  EXPECT_EQ(moe.prompt_threshold, 6144);
  EXPECT_EQ(moe.width, 4);
  EXPECT_EQ(moe.width_cap, 16);
  EXPECT_EQ(local_traits("mine", Family::kFlashNext).certified_width, 32);
}

TEST(Identity, NearestIdsComeFirst) {
  EXPECT_THAT(nearest_ids("demo-dens-4bit", 1), ElementsAre("demo-dense-4bit"));
  EXPECT_THAT(nearest_ids("text-agent-ornith-35b-mlx-5bit", 2),
              ElementsAre("text-agent-ornith-35b-mlx-4bit", "text-agent-ornith-35b-mlx-6bit"));
  EXPECT_THAT(nearest_ids("x", 0), IsEmpty());
  EXPECT_THAT(nearest_ids(std::string(1 << 20, 'x'), 3), SizeIs(3));
}

}  // namespace
}  // namespace mererun
