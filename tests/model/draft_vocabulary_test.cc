#include "model/draft_vocabulary.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mererun {
namespace {

TEST(DraftVocabulary, StandardMapIsThatOfTheLargeVocabulary) {
  const std::optional<DraftVocabulary> standard = DraftVocabulary::standard(248320);
  ASSERT_TRUE(standard.has_value());
  EXPECT_EQ(standard->rows(), 98330);
  EXPECT_EQ(standard->padded_rows(), 98336);
  EXPECT_EQ(standard->compact_id_to_token(0), 0);
  EXPECT_EQ(standard->compact_id_to_token(98303), 98303);
  for (int compact = 98304; compact < 98330; ++compact) {
    EXPECT_EQ(standard->compact_id_to_token(compact), compact + 149740);
  }
  for (int pad = 0; pad < 6; ++pad) EXPECT_EQ(standard->source_row(98330 + pad), pad);
  EXPECT_THROW((void)standard->compact_id_to_token(98330), Error);
  EXPECT_THROW((void)standard->compact_id_to_token(-1), Error);
  EXPECT_FALSE(DraftVocabulary::standard(8192).has_value());
}

TEST(DraftVocabulary, LaysTheRangesEndToEnd) {
  const DraftVocabulary vocabulary({{3, 5}, {6, 6}, {90, 99}}, 100, "test");
  ASSERT_EQ(vocabulary.rows(), 14);
  EXPECT_EQ(vocabulary.padded_rows(), 32);
  const std::vector<TokenId> tokens{3, 4, 5, 6, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99};
  for (int compact = 0; compact < vocabulary.rows(); ++compact) {
    EXPECT_EQ(vocabulary.compact_id_to_token(compact), tokens[static_cast<std::size_t>(compact)]);
    EXPECT_EQ(vocabulary.source_row(compact), tokens[static_cast<std::size_t>(compact)]);
  }
  EXPECT_EQ(vocabulary.source_row(14), 3);
  EXPECT_EQ(vocabulary.source_row(28), 3);  // a short vocabulary repeats more than once
}

// B074: a trimmed draft head of the first rows is a range, not a shape error.
TEST(DraftVocabulary, ATrimmedHeadIsOneRange) {
  const DraftVocabulary vocabulary({{0, 127}}, 256, "test");
  EXPECT_EQ(vocabulary.rows(), 128);
  EXPECT_EQ(vocabulary.padded_rows(), 128);
  EXPECT_EQ(vocabulary.compact_id_to_token(127), 127);
}

TEST(DraftVocabulary, RefusesBadRanges) {
  using Ranges = std::vector<TokenRange>;
  for (const Ranges& ranges : {Ranges{}, Ranges{{5, 4}}, Ranges{{0, 100}}, Ranges{{-1, 4}},
                               Ranges{{0, 4}, {4, 9}}, Ranges{{10, 12}, {0, 4}}}) {
    EXPECT_THROW(DraftVocabulary(ranges, 100, "test"), Error);
  }
}

}  // namespace
}  // namespace mererun
