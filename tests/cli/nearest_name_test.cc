#include "cli/nearest_name.h"

#include <gtest/gtest.h>

namespace mererun {

namespace {

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("chat", "chat"), 0u);
  EXPECT_EQ(edit_distance("chat", "chta"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3u);
}

TEST(NearestName, PicksTheNearestOrNone) {
  const std::vector<std::string> names = {"--prompt", "--prompt-file", "--top-p", "--top-k", "--temperature"};
  EXPECT_EQ(nearest_name("--pormpt", names), "--prompt");
  EXPECT_EQ(nearest_name("--prompt-fil", names), "--prompt-file");
  EXPECT_EQ(nearest_name("--temp", names), "--temperature");
  EXPECT_EQ(nearest_name("--topk", names), "--top-k");
  EXPECT_EQ(nearest_name("--image-size", names), "");
  EXPECT_EQ(nearest_name("x", {"ab"}), "");
  EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace

}  // namespace mererun
